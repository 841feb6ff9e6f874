"""From steps seen at a server to the records an engine of ours would leave of them. Pure.

Owns the numbers of steps and requests, and what of the tokens is known: those of prompts sent from here,
and no others unless the server tells its slots' texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count

from engine.attach.prompts import Own
from engine.attach.seen import Ended, Part, SlotSeen, StepSeen, Width
from engine.attach.source import OTHERS
from engine.attach.tokens import TokenNumbers, Told
from engine.stream.records import (
    UNKNOWN_TOKEN,
    Admission,
    Events,
    Finish,
    QuietRecord,
    Record,
    Release,
    RequestRecord,
    Segment,
    SlotRecord,
    StepRecord,
    TokenCounts,
    WaitingRecord,
)

#: How a waiting prompt is said to wait while a slot is free: the server has not been seen to take it up.
NOT_YET = "not_in_a_slot_yet"
#: What stands for none: that it is not told, and llama.cpp's own "any" (-1, as it writes it).
_NO_SEED = (-1, 0xFFFFFFFF)


class SeenRecords:
    """Writes records; `owns` are the prompts sent from here, by the seed they can be recognised by.

    Args:
        indices: arrival numbers.
    """

    def __init__(self, indices: count[int]) -> None:
        self._indices = indices
        self._tokens = TokenNumbers()
        self._step = 0
        self._missed = 0
        self._num_slots = 1
        #: Request ids by (slot, task), of those in a slot now.
        self._running: dict[tuple[int, int], str] = {}
        self._slots: dict[int, SlotRecord] = {}
        #: Tokens dropped from the start of requests that run, by (slot, task), as far as that was told.
        self._shifted: dict[tuple[int, int], int] = {}
        self._owns: dict[str, Own] = {}
        #: Those of them whose end stands in no record yet.
        self._open: dict[str, Own] = {}
        self._by_seed: dict[int, list[Own]] = {}
        self._submitted: set[str] = set()
        self._figures: dict[str, float] = {}
        self._new_figures: dict[str, float | None] = {}
        self.num_deferred: int | None = None

    # -- prompts sent from here ---------------------------------------------------------------

    def sent(self, owns: Iterable[Own]) -> None:
        """Prompts were sent."""
        for own in owns:
            self._owns[own.request_id] = self._open[own.request_id] = own
            self._by_seed.setdefault(own.seed, []).append(own)

    def own_of(self, seen: SlotSeen) -> Own | None:
        """The prompt sent from here that is in a slot, if it is one."""
        request_id = self._running.get((seen.slot, seen.task))
        if request_id is not None:
            return self._owns.get(request_id)
        for own in self._by_seed.get(seen.seed, ()):
            if own.request_id in self._open and own.request_id not in self._running.values():
                return own
        return None

    def arrivals(
        self, at_s: float, is_unseen_over: Callable[[Own], bool] = lambda _: True
    ) -> list[QuietRecord]:
        """Of prompts sent from here: those whose tokens are known by now arrive, and those end that were
        over before they were seen in a slot, unless they may still be seen (`is_unseen_over`)."""
        new = [own for own in self._pending() if own.prompt.tokens or (own.is_over and is_unseen_over(own))]
        running = set(self._running.values())
        over = [own for own in self._open.values() if own.is_over and own.request_id not in running]
        over = [own for own in over if is_unseen_over(own)]
        if not new and not over:
            return []
        submitted = tuple(self._request_of_own(own, len(own.prompt.tokens)) for own in new)
        finished = tuple(
            Finish(own.request_id, own.reason, None, len(own.tokens), at_s, own.error) for own in over
        )
        for own in over:
            self._end(own.request_id)
        return [QuietRecord(self._step, at_s, self._events(submitted=submitted, finished=finished))]

    def waiting(self) -> tuple[WaitingRecord, ...]:
        """Prompts sent from here that have arrived and are in no slot."""
        reason = "no_free_slot" if len(self._slots) >= self._num_slots else NOT_YET
        running = set(self._running.values())
        return tuple(
            WaitingRecord(request_id, reason)
            for request_id in self._open
            if request_id in self._submitted and request_id not in running
        )

    def arriving(self) -> list[Own]:
        """Prompts sent from here that have not arrived."""
        return [own for own in self._pending() if not own.is_over]

    def _pending(self) -> list[Own]:
        return [own for own in self._open.values() if own.request_id not in self._submitted]

    def _end(self, request_id: str) -> None:
        self._open.pop(request_id, None)

    # -- what the server says of itself -------------------------------------------------------

    def figures(self, found: dict[str, float]) -> None:
        """Its newest figures; those that changed go with the next record."""
        for name, value in found.items():
            if self._figures.get(name) != value:
                self._new_figures[name] = value
        self._new_figures |= dict.fromkeys(self._figures.keys() - found.keys())
        self._figures = dict(found)

    def missed(self, number: int) -> None:
        """So many steps went by of which nothing is known; the next step's number skips them."""
        self._missed += number

    # -- steps --------------------------------------------------------------------------------

    def quiet(self, at_s: float, error: str = "") -> list[Record]:
        """What is new beside steps, and a fault; nothing, if nothing is."""
        if not (self._new_figures or error):
            return []
        return [QuietRecord(self._step, at_s, self._events(errors=(error,) if error else ()))]

    def records(
        self,
        step: StepSeen,
        num_slots: int,
        *,
        width: Width | None = None,
        pool: tuple[int, float | None] = (0, None),
        reserved_blocks: int = 0,
    ) -> list[Record]:
        """What is to be recorded of a step.

        Args:
            width: of the whole step, where more is in it than the parts that are known. The record counts
                all its tokens then; its shape is that of the known parts, for rows and masks to be drawn.
            pool: KV blocks, and the share in use of those that are not reserved.
            reserved_blocks: of the pool, blocks that nobody is ever given.
        """
        self._num_slots = num_slots
        if step.start_s == step.end_s and not step.parts:
            return [self._ended_without_step(step.ended, step.end_s)]
        submitted, admitted = self._entries(step.parts, step.start_s)
        segments, q_start, kv_start = [], 0, 0
        for part in step.parts:
            segment = self._segment(part, q_start, kv_start)
            segments.append(segment)
            q_start, kv_start = q_start + segment.q_len, kv_start + segment.kv_len
        for part in step.parts:
            self._slots[part.seen.slot] = self._slot(part)
        slots = tuple(self._slots[number] for number in sorted(self._slots))
        finished, released, sure = self._ends(step.ended, step.end_s)
        waiting = self.waiting()
        self._step += 1 + self._missed
        prompt = sum(part.count for part in step.parts if part.is_prefill)
        decode = sum(part.count for part in step.parts if not part.is_prefill)
        if width is not None and width.num_tokens >= q_start:
            decode = width.num_decode
            prompt = width.num_tokens - decode
            # With nothing known of who is in it, the row has its width all the same.
            q_start = q_start or width.num_tokens
        # With others in it and not counted alone, nobody knows how wide it was.
        unknown = () if step.is_whole else ("requests",) if width else ("requests", "tokens")
        num_blocks, share = pool
        usable = max(0, num_blocks - reserved_blocks)
        used = round(usable * share) if share is not None else 0
        record = StepRecord(
            step=self._step,
            epoch=1,
            mode="continuous",
            policy="fcfs",
            layout="ragged",
            start_s=step.start_s,
            end_s=step.end_s,
            shape=(1, q_start),
            num_keys=kv_start,
            tokens=TokenCounts(prompt=prompt, decode=decode),
            max_num_batched_tokens=0,
            max_num_seqs=num_slots,
            segments=tuple(segments),
            slots=slots,
            waiting_count=max(len(waiting), self.num_deferred or 0),
            waiting=waiting[:64],
            free_blocks=max(0, usable - used),
            num_blocks=num_blocks,
            reserved_blocks=num_blocks - usable,
            kv_tokens=sum(slot.num_computed_tokens for slot in slots),
            events=self._events(
                submitted=submitted,
                admitted=admitted,
                finished=finished,
                released=released,
                errors=self._shifts(step.parts),
            ),
            inferred=(() if step.is_seen else ("steps", "times")) + unknown + (() if sure else ("finish",)),
            missed=self._missed,
        )
        self._missed = 0
        return [record]

    def lost(self, gone: Iterable[SlotSeen], at_s: float) -> list[Record]:
        """Requests ended while nobody looked: of their ends nothing is known."""
        ended = [Ended(seen, seen.num_decoded, "error", False) for seen in gone]
        return [self._ended_without_step(ended, at_s)] if ended else []

    def _ended_without_step(self, ended: Sequence[Ended], at_s: float) -> QuietRecord:
        finished, released, _ = self._ends(ended, at_s)
        return QuietRecord(self._step, at_s, self._events(finished=finished, released=released))

    def _shifts(self, parts: Sequence[Part]) -> tuple[str, ...]:
        """Whose context was full, so that the server dropped the oldest of it."""
        said = []
        for part in parts:
            place, number = (part.seen.slot, part.seen.task), part.seen.num_shifted
            dropped = number - self._shifted.get(place, 0)
            if dropped > 0:
                self._shifted[place] = number
                said.append(f"slot {place[0]}'s context was full: its {dropped:,} oldest tokens were dropped")
        return tuple(said)

    def _entries(
        self, parts: Sequence[Part], at_s: float
    ) -> tuple[tuple[RequestRecord, ...], tuple[Admission, ...]]:
        submitted, admitted = [], []
        for part in parts:
            seen = part.seen
            place = seen.slot, seen.task
            if place in self._running:
                continue
            own = self.own_of(seen)
            if own is None:
                request = self._request_of_other(seen, at_s)
                submitted.append(request)
                self._running[place] = request.request_id
            else:
                if own.request_id not in self._submitted:
                    submitted.append(self._request_of_own(own, seen.num_prompt))
                self._running[place] = own.request_id
            admitted.append(Admission(self._running[place], seen.slot, num_cached_tokens=seen.num_cached))
        return tuple(submitted), tuple(admitted)

    def _ends(
        self, ended: Sequence[Ended], at_s: float
    ) -> tuple[tuple[Finish, ...], tuple[Release, ...], bool]:
        finished, released, sure = [], [], True
        for one in ended:
            seen = one.seen
            request_id = self._running.pop((seen.slot, seen.task), None)
            if request_id is None:
                continue  # it went before it was ever fed
            own = self._owns.get(request_id)
            error = own.error if own else ""
            if one.reason == "error" and not error:
                error = "it ended while the server was out of sight"
            finished.append(Finish(request_id, one.reason, seen.slot, one.num_output, at_s, error))
            released.append(Release(request_id, seen.slot))
            self._end(request_id)
            self._slots.pop(seen.slot, None)
            self._shifted.pop((seen.slot, seen.task), None)
            sure = sure and one.is_sure
        return tuple(finished), tuple(released), sure

    # -- parts of records ---------------------------------------------------------------------

    def _segment(self, part: Part, q_start: int, kv_start: int) -> Segment:
        seen, own = part.seen, self.own_of(part.seen)
        stop = part.position + part.count
        if part.is_prefill:
            ids = self._prompt_ids(own, seen.num_prompt)[part.position : stop]
        else:
            ids = (self._output(own, (part.output or 1) - 1)[0],)
        told = None if part.output is None else self._output(own, part.output)
        return Segment(
            self._running[seen.slot, seen.task],
            seen.slot,
            "prefill" if part.is_prefill else "decode",
            0,
            q_start,
            part.count,
            kv_start,
            stop,
            part.position,
            ids,
            (),
            max(0, seen.num_prompt - stop) if part.is_prefill else 0,
            *(told or (None, None, ())),
        )

    def _slot(self, part: Part) -> SlotRecord:
        seen = part.seen
        return SlotRecord(
            seen.slot,
            self._running[seen.slot, seen.task],
            False,
            part.position + part.count,
            seen.num_prompt,
            part.output or 0,
            max(1, seen.max_tokens),
        )

    def _prompt_ids(self, own: Own | None, length: int) -> tuple[int, ...]:
        if own is None or len(own.prompt.tokens) != length:
            return (UNKNOWN_TOKEN,) * length
        return tuple(self._tokens.known(token_id, data) for token_id, data in own.prompt.tokens)

    def _output(self, own: Own | None, number: int) -> Told:
        """Output token `number` (from 1) of a request."""
        if own is None or not 1 <= number <= len(own.tokens):
            return UNKNOWN_TOKEN, None, ()
        return self._tokens.of(own.tokens[number - 1])

    def _request_of_own(self, own: Own, length: int) -> RequestRecord:
        request = own.request
        self._submitted.add(own.request_id)
        return RequestRecord(
            own.request_id,
            own.index,
            self._prompt_ids(own, length),
            request.prompt,
            request.max_tokens,
            own.sent_s,
            request.temperature,
            own.seed,
            request.ignore_eos,
            request.stop_token_ids,
            own.prompt.num_template,
            request.label,
            request.top_k,
            request.top_p,
            request.stop,
        )

    def _request_of_other(self, seen: SlotSeen, at_s: float) -> RequestRecord:
        index = next(self._indices)
        return RequestRecord(
            f"{OTHERS}{index}",
            index,
            (UNKNOWN_TOKEN,) * seen.num_prompt,
            seen.prompt_text,
            max(1, seen.max_tokens),
            at_s,
            seed=0 if seen.seed in _NO_SEED else seen.seed,
            label=f"task {seen.task}",
        )

    def _events(
        self,
        *,
        submitted: tuple[RequestRecord, ...] = (),
        admitted: tuple[Admission, ...] = (),
        finished: tuple[Finish, ...] = (),
        released: tuple[Release, ...] = (),
        errors: tuple[str, ...] = (),
    ) -> Events:
        figures, self._new_figures = tuple(self._new_figures.items()), {}
        return Events(
            submitted=submitted,
            admitted=admitted,
            finished=finished,
            released=released,
            tokens=self._tokens.take_new(),
            figures=figures,
            errors=errors,
        )
