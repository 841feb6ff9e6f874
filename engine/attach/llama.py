"""A llama.cpp server, followed by looking at its slots.

Looks come as fast as steps do, 40 to 100 a second, and slower where a look costs the server much. Beside
the slots, `/metrics` (where it is on) tells how many wait, and whether steps went by that nobody saw.
Looking changes nothing, except that llama.cpp's two tokens-per-second gauges begin anew at every scrape.
A server may unload its model while it has nothing to do (`--sleep-idle-seconds`). A look at the slots would
keep it awake, or wake it, so of an idle server `/metrics` is asked whether anything has begun, and of a
sleeping one `/props`, which do neither (llama.cpp b10519 and later; before, and without `/metrics`, looking
keeps it awake).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from engine.attach.address import Address, Key
from engine.attach.asking import AskingSource, queue_of
from engine.attach.llama_routes import Props, encode
from engine.attach.llama_slots import NotSlots, read_slots
from engine.attach.llama_steps import Known, StepBuilder
from engine.attach.metrics_text import NotMetrics, Samples
from engine.attach.plain import harmless
from engine.attach.prompts import at_once_for
from engine.attach.seen import SlotSeen
from engine.attach.source import Opened, Queue, SourceLost
from engine.config import SLOT_LIMIT, EngineConfig
from engine.live.commands import PromptRequest
from engine.runner import ModelInfo
from engine.stream.records import WAITING_SHOWN, Provenance, Record

#: Seconds between two looks: the least and the most while something runs, and while nothing does.
LOOK_LEAST_S, LOOK_MOST_S, LOOK_IDLE_S = 0.01, 0.025, 0.1
#: Looks take at most this share of the time; a server slower than that is looked at less often.
LOOK_SHARE = 0.2
#: Seconds between two scrapes of `/metrics`.
SCRAPE_S = 0.25
#: How long a look waits for the texts of prompts sent from here, which come on their own way, seconds.
HOLD_S = 1.0
#: The figures that are passed on, without their prefix.
FIGURES = (
    "requests_processing",
    "requests_deferred",
    "n_decode_total",
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "tokens_predicted_total",
    "n_tokens_max",
)
PREFIX = "llamacpp:"
#: Of these, the ones that move when anything happens; the first is 0 when nothing runs.
MOVING = ("requests_processing", "requests_deferred", "n_decode_total", "tokens_predicted_total")
#: Looks after which an idle server is left alone.
QUIET_LOOKS = 3

_INFERRED = (
    ("steps", "told apart by each slot's count of tokens"),
    ("times", "when a look noticed"),
    ("row", "slots in order; the server may pack them otherwise"),
    ("mask", "follows from query and context lengths"),
    ("mode", "llama.cpp batches continuously unless told not to"),
)
_ABSENT = (
    ("prompt_tokens", "the server does not tell the tokens of other clients' requests"),
    ("output_tokens", "the server does not tell the tokens of other clients' requests"),
    ("logprobs", "the server does not tell those of other clients' requests"),
    ("budget", "/slots does not tell n_batch"),
    ("blocks", "llama.cpp has cells a slot, no blocks"),
    ("kv", "llama.cpp has cells a slot, no pool of blocks"),
    ("waiting_requests", "only prompts sent from here are known by name"),
    ("finish", "the server does not tell why other clients' requests end"),
)
NO_METRICS = "its /metrics is off (--metrics turns it on): only prompts sent from here are counted"


class LlamaSource(AskingSource):
    """Implements `Source`; arguments as `AskingSource` has them."""

    def __init__(
        self,
        address: Address,
        key: Key,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(address, key, now_s=now_s, sleep=sleep)
        self._builder = StepBuilder()
        self._looks: deque[tuple[float, tuple[SlotSeen, ...]]] = deque()
        self._newest: tuple[SlotSeen, ...] = ()
        self._next_look_s = self._next_scrape_s = 0.0
        #: Why its metrics tell nothing; empty: they do.
        self._no_metrics = NO_METRICS
        self._told_unseen = 0
        #: Steps made and the server's own count of them when both were last known to agree.
        self._num_steps = 0
        self._agreed: tuple[int, float] | None = None
        self._quiet_looks = 0
        #: Its own counts when it was last found idle: while they stand, nothing has begun.
        self._idle_counts: tuple[float | None, ...] | None = None
        self._is_asleep = False
        self._is_first = True

    # -- opening ------------------------------------------------------------------------------

    def open(self) -> Opened:
        """See `Source`."""
        self._connect()
        facts = self._props()
        self._is_asleep = facts.is_sleeping
        samples = self._scrape()
        slots = _sleeping_slots(facts) if self._is_asleep else self._slots()
        self._take_prompts(facts.model, encode, at_once=at_once_for(len(slots)))
        self._come_back(slots)
        total = samples.sum(PREFIX + "n_decode_total") if samples else None
        if total is not None and not any(one.is_processing for one in slots):
            self._agreed = (self._num_steps, total)
        n_ctx = max((one.n_ctx for one in slots), default=0)
        return Opened(
            info=ModelInfo(
                name=facts.name,
                source=facts.model,
                device="",
                dtype=facts.ftype,
                max_model_len=n_ctx or 2048,
                has_chat_template=facts.has_chat_template,
            ),
            config=EngineConfig(
                max_num_seqs=max(1, min(len(slots), SLOT_LIMIT)),
                max_num_batched_tokens=max(2048, len(slots)),
                max_model_len=max(2, n_ctx or 2048),
            ),
            provenance=Provenance(
                engine=f"llama.cpp server {facts.build}".strip(),
                address=str(self._address),
                inferred=_INFERRED,
                absent=(*_ABSENT, *((("waiting", self._no_metrics),) if self._no_metrics else ())),
            ),
        )

    def _come_back(self, slots: tuple[SlotSeen, ...]) -> None:
        """Begin, or go on after a loss: what ended meanwhile has ended, what went on has steps missing."""
        now, before = self._now(), self._builder.slots
        self._looks.clear()
        self._early: list[Record] = []
        if not self._is_first:
            after = {(one.slot, one.task): one for one in slots if one.is_processing}
            gone = [one for one in before.values() if one.is_processing and (one.slot, one.task) not in after]
            self._early = [*self._records.lost(gone, now), *self._records.quiet(now)]
            self._records.missed(
                max(
                    (
                        one.num_decoded - before[slot].num_decoded
                        for (slot, task), one in after.items()
                        if slot in before and before[slot].is_processing and before[slot].task == task
                    ),
                    default=0,
                )
            )
        self._is_first, self._agreed = False, None
        self._builder.begin(now, slots)
        self._newest = slots
        self._next_look_s = self._next_scrape_s = 0.0

    # -- reading ------------------------------------------------------------------------------

    def read(self, timeout_s: float) -> Sequence[Record]:
        """See `Source`."""
        wait_s = self._next_look_s - self._now()
        if wait_s > 0:
            self._sleep(min(wait_s, timeout_s))
        if self._now() >= self._next_look_s:
            self._look()
        records, self._early = self._early, []
        if self._prompts is not None:
            self._prompts.news()
        # One that is over may still be seen in a look taken before.
        records += self._records.arrivals(self._now(), lambda own: own.over_s < self._builder.at_s)
        while self._looks and (self._is_ready(*self._looks[0])):
            at_s, slots = self._looks.popleft()
            counted = self._counted_by_server() if self._is_ending(slots) else None
            for step in self._builder.look(at_s, slots, self._known_total, counted):
                if step.parts:
                    self._num_steps += 1
                records += self._records.records(step, len(slots))
        records += self._unseen()
        if not self._no_metrics and self._now() >= self._next_scrape_s:
            self._compare_counts()
        return records

    def _unseen(self) -> list[Record]:
        """Say that requests of other clients were too short to be seen."""
        number = self._builder.num_unseen - self._told_unseen
        if number <= 0:
            return []
        self._told_unseen += number
        who = "A request of another client" if number == 1 else f"{number:,} requests of other clients"
        return self._records.quiet(self._builder.at_s, f"{who} came and went between two looks")

    def _look(self) -> None:
        began_s = self._now()
        if self._is_left_alone():
            self._next_look_s = began_s + max(LOOK_IDLE_S, (self._now() - began_s) / LOOK_SHARE)
            return
        slots = self._slots()
        at_s = self._now()
        self._looks.append((at_s, slots))
        is_busy = any(one.is_processing for one in slots)
        self._quiet_looks = 0 if is_busy or slots != self._newest else self._quiet_looks + 1
        self._newest = slots
        wanted = LOOK_IDLE_S
        if is_busy or self._records.arriving() or self._records.waiting():
            wanted = min(max(self._builder.step_s / 4, LOOK_LEAST_S), LOOK_MOST_S)
        self._next_look_s = began_s + max(wanted, (at_s - began_s) / LOOK_SHARE)

    def _is_left_alone(self) -> bool:
        """Whether nothing can have begun since the last look, so that no other is needed."""
        if self._is_asleep:
            self._is_asleep = self._props().is_sleeping
            return self._is_asleep
        if self._no_metrics or self._quiet_looks < QUIET_LOOKS or self._records.arriving() or self._looks:
            self._idle_counts = None
            return False
        samples = self._scrape()
        counts = tuple(samples.sum(PREFIX + name) for name in MOVING) if samples else None
        is_still = counts is not None and counts == self._idle_counts and not counts[0]
        self._idle_counts = counts
        return is_still

    def _props(self) -> Props:
        props = self._http.json("/props")
        return Props(props if isinstance(props, dict) else {})

    def _is_ready(self, at_s: float, slots: Sequence[SlotSeen]) -> bool:
        """Whether all that is known of the tokens of a look is there, or has been waited for long enough."""
        if self._now() - at_s > HOLD_S:
            return True
        now = {(one.slot, one.task): one for one in slots if one.is_processing}
        for seen in now.values():
            own = self._records.own_of(seen)
            if own and not own.is_over and len(own.tokens) < seen.num_decoded:
                return False
        # Those that are gone, and those that may have come and gone: their ends are on their way.
        before = [was for was in self._builder.slots.values() if was.is_processing]
        gone = [one for one in (*before, *slots) if (one.slot, one.task) not in now]
        for one in gone:
            own = self._records.own_of(one)
            if own and not own.is_over:
                return False
        return True

    def _known_total(self, seen: SlotSeen) -> Known | None:
        own = self._records.own_of(seen)
        if own is None or not own.is_over:
            return None
        output = len(own.tokens) if own.num_output is None else own.num_output
        prompt = len(own.prompt.tokens) if own.num_prompt is None else own.num_prompt
        return Known(prompt, output, own.reason)

    def _slots(self) -> tuple[SlotSeen, ...]:
        body = self._http.ask("/slots")
        if body is None:
            raise SourceLost(f"{self._address} tells nothing of its slots: it was started with --no-slots")
        try:
            return read_slots(body)
        except NotSlots as exc:
            raise SourceLost(f"{self._address}: {harmless(str(exc))}") from None

    # -- its own counts -----------------------------------------------------------------------

    def _scrape(self) -> Samples | None:
        body = self._http.ask("/metrics")
        if body is None:
            self._no_metrics = NO_METRICS
            self._records.figures({})
            self._records.num_deferred = None
            return None
        try:
            samples = Samples(body.decode("utf-8", "replace"))
        except NotMetrics as exc:
            self._no_metrics = str(exc)
            return None
        self._no_metrics = ""
        figures = {name: value for name in FIGURES if (value := samples.sum(PREFIX + name)) is not None}
        self._records.figures(figures)
        deferred = figures.get("requests_deferred")
        self._records.num_deferred = None if deferred is None else int(deferred)
        return samples

    def _is_ending(self, slots: Sequence[SlotSeen]) -> bool:
        """Whether all that ran is gone, so that no slot is left to count the last steps."""
        is_idle = not any(one.is_processing for one in slots)
        return is_idle and any(one.is_processing for one in self._builder.slots.values())

    def _counted_by_server(self) -> int | None:
        """Steps since those that are told, by the server's own count; None: it is not known."""
        if self._no_metrics or self._agreed is None or self._looks:
            return None
        samples = self._scrape()
        total = samples.sum(PREFIX + "n_decode_total") if samples else None
        steps, before = self._agreed
        counted = None if total is None else int(total - before) - (self._num_steps - steps)
        return counted if counted and counted > 0 else None

    def _compare_counts(self) -> None:
        """While nothing runs, the server's count of steps and ours can be compared."""
        self._next_scrape_s = self._now() + (SCRAPE_S if self._quiet_looks < QUIET_LOOKS else 4 * SCRAPE_S)
        samples = self._scrape()
        total = samples.sum(PREFIX + "n_decode_total") if samples else None
        if total is None or self._looks or self._quiet_looks < QUIET_LOOKS:
            return
        if self._agreed is not None:
            steps, before = self._agreed
            missed = int(total - before) - (self._num_steps - steps)
            if missed > 0:
                self._records.missed(missed)
        self._agreed = (self._num_steps, total)

    # -- prompts ------------------------------------------------------------------------------

    def queue(self) -> Queue | None:
        """See `Source`."""
        waiting = self._records.waiting()
        return queue_of(
            self._records.arriving(),
            lambda own: "next_step" if own.is_encoded else "encoding",
            waiting_count=max(len(waiting), self._records.num_deferred or 0),
            waiting=waiting[:WAITING_SHOWN],
        )

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        """See `Source`. What comes of them is looked for at once."""
        super().submit(requests)
        self._next_look_s = 0.0


def _sleeping_slots(facts: Props) -> tuple[SlotSeen, ...]:
    """The slots of a server that sleeps: all of them idle."""
    return tuple(SlotSeen(slot=number, n_ctx=facts.n_ctx) for number in range(facts.num_slots))
