"""The story of every request, folded from the records: the one reader most other readers build on.

Screens, `compare`, metrics and replay ask it what a request looked like at any step. Pure; holds no
engine state that the records do not say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engine.stream.records import (
    Events,
    Finish,
    QuietRecord,
    Record,
    RequestRecord,
    StepRecord,
    Verification,
)


class Turn(NamedTuple):
    """A turn in a request's story: it arrived, entered a slot (`entered`, or `back` after it had to give
    way), gave way (`tokens` must be fed again), ended, or its slot became free (`left`).

    `step` is the step it belongs to, `time_s` the engine clock.
    """

    kind: Literal["arrived", "entered", "back", "gave way", "ended", "left"]
    step: int
    time_s: float
    slot: int | None = None
    tokens: int = 0


@dataclass(slots=True)
class RequestStory:
    """One request over time. Steps are step numbers, times are engine seconds.

    `token_steps[i]` is the step that made output token i; `token_times[i]` its end on the engine clock.
    `submitted_step`: the last finished step when it arrived. `first_step`: the step that first fed it.
    `turns`: what happened to it, in order.
    `steps_fed`: steps that fed it a useful token. `num_cached_tokens`: tokens it found in shared blocks
    when it entered (prefix hits), summed over its entries. `num_drafts`, `num_accepted`: drafts fed for it,
    and those of them that were accepted.
    `finish_step`: the last finished step when it ended. `release_step`: the step that freed its slot.
    `dead_steps`: steps its slot was held after its end. `delivered_step` is when a caller of static
    batching that waits for the whole wave would see it (the barrier), else `finish_step`.
    `verified`: what came of checking it alone, once that is done.
    """

    request: RequestRecord
    submitted_step: int
    slot: int | None = None
    first_step: int | None = None
    first_scheduled_s: float | None = None
    output_token_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    token_steps: list[int] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    steps_fed: int = 0
    dead_steps: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_drafts: int = 0
    num_accepted: int = 0
    finish: Finish | None = None
    finish_step: int | None = None
    release_step: int | None = None
    release_s: float | None = None
    verified: Verification | None = None

    @property
    def request_id(self) -> str:
        """Unique in its stream."""
        return self.request.request_id

    @property
    def index(self) -> int:
        """Arrival number, from 0."""
        return self.request.index

    def outputs_at(self, step: int) -> list[int]:
        """Output token ids made up to and including `step`."""
        return self.output_token_ids[: bisect_right(self.token_steps, step)]

    def tokens_at(self, step: int) -> range:
        """Which output tokens the step made; several, where drafts were accepted."""
        return range(bisect_left(self.token_steps, step), bisect_right(self.token_steps, step))

    def gaps_s(self, count: int | None = None) -> list[float]:
        """ITL: seconds between successive output tokens, of the first `count` of them (None: of all).

        Tokens that one step made come together and count as one, as they do in vLLM's own figures.
        """
        times, steps = self.token_times[:count], self.token_steps[:count]
        return [times[n] - times[n - 1] for n in range(1, len(times)) if steps[n] != steps[n - 1]]

    def waits_since(self, step: int) -> int:
        """The last step before it began to wait, for one that waits at `step`: it arrived, or gave way."""
        since = self.submitted_step
        for turn in self.turns:
            if turn.kind == "gave way" and turn.step <= step:
                since = turn.step - 1  # in that step it was not fed any more
        return since

    def is_finished_at(self, step: int) -> bool:
        """Whether its terminal event came at or before `step`."""
        return self.finish_step is not None and self.finish_step <= step

    def is_over_before(self, step: int) -> bool:
        """Whether everything that ever happened to it came before `step`."""
        if self.finish is None or self.finish_step is None:
            return False
        over = self.finish_step if self.finish.slot is None else self.release_step
        return over is not None and max(over, self.finish_step) < step

    @property
    def queue_s(self) -> float | None:
        """Queue time: arrival to first scheduled."""
        return None if self.first_scheduled_s is None else self.first_scheduled_s - self.request.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token: arrival to first output token, waiting included."""
        if self.request.made_before or not self.token_times:
            return None
        return self.token_times[0] - self.request.arrival_s

    @property
    def e2e_s(self) -> float | None:
        """E2E latency: arrival to end."""
        return None if self.finish is None else self.finish.time_s - self.request.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first: n tokens have n - 1 gaps; None below two tokens."""
        times = self.token_times[len(self.request.made_before) :]  # of those before, nobody saw when
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


class Ledger:
    """Folds records into stories. `apply` each record once, in order.

    Args:
        kept: finished requests whose stories `forget` leaves, the newest; None: it leaves all.
    """

    def __init__(self, kept: int | None = None) -> None:
        self.kept = kept
        #: By request id, in order of arrival; all there are, but for those forgotten.
        self.stories: dict[str, RequestStory] = {}
        #: Requests that arrived, and finished ones whose stories were forgotten.
        self.num_requests = 0
        self.num_forgotten = 0
        #: Bytes of every token id seen in the stream.
        self.token_bytes: dict[int, bytes] = {}
        #: Ids of finished requests with a story, oldest first.
        self.finished: list[str] = []
        self.step = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> Ledger:
        """The stories of a whole run."""
        ledger = cls()
        for record in records:
            ledger.apply(record)
        return ledger

    @property
    def in_order(self) -> list[RequestStory]:
        """The stories, as their requests arrived."""
        return sorted(self.stories.values(), key=lambda story: story.index)

    @property
    def num_finished(self) -> int:
        """Requests that have ended, forgotten ones too."""
        return self.num_forgotten + len(self.finished)

    def forget(self, before_step: int) -> list[str]:
        """Forget the stories of finished requests beyond the newest `kept`, oldest first.

        Those stay that something happened to in `before_step` or later, or whose slots are held, so that
        every record from that step on can still be read. Costs nothing when there is nothing to forget.

        Returns:
            their ids.
        """
        surplus = 0 if self.kept is None else len(self.finished) - self.kept
        gone = 0
        while gone < surplus and self.stories[self.finished[gone]].is_over_before(before_step):
            gone += 1
        forgotten = self.finished[:gone]
        for request_id in forgotten:
            del self.stories[request_id]
        del self.finished[:gone]
        self.num_forgotten += gone
        return forgotten

    def __getitem__(self, request_id: str) -> RequestStory:
        return self.stories[request_id]

    def apply(self, record: Record) -> None:
        """Take one record in. Cost follows what changed in it, not the length of the run."""
        self.step = record.step
        match record:
            case StepRecord():
                # What a step's record says arrived was there before the step was scheduled.
                self._apply_arrivals(record.events, record.step - 1)
                for admission in record.events.admitted:
                    story = self.stories[admission.request_id]
                    story.slot = admission.slot
                    story.num_cached_tokens += admission.num_cached_tokens
                    kind: Literal["entered", "back"] = "back" if admission.resumed else "entered"
                    story.turns.append(Turn(kind, record.step, record.start_s, admission.slot))
                    if story.first_step is None:
                        story.first_step, story.first_scheduled_s = record.step, record.start_s
                self._apply_segments(record)
                self._apply_ends(record.events, record.step, record.end_s)
            case QuietRecord():
                self._apply_arrivals(record.events, record.step)
                self._apply_ends(record.events, record.step, record.time_s)

    def _apply_arrivals(self, events: Events, step: int) -> None:
        self.token_bytes.update(events.tokens)
        for request in events.submitted:
            story = self.stories[request.request_id] = RequestStory(request, step)
            story.turns.append(Turn("arrived", step, request.arrival_s))
            self.num_requests += 1
            for token in request.made_before:
                story.output_token_ids.append(token)
                story.logprobs.append(None)
                story.token_steps.append(step)
                story.token_times.append(request.arrival_s)

    def _apply_segments(self, record: StepRecord) -> None:
        for segment in record.segments:
            story = self.stories[segment.request_id]
            if segment.kind == "dead":
                story.dead_steps += 1
                continue
            story.steps_fed += 1
            if segment.drafts is not None:
                story.num_drafts += segment.drafts.fed
                story.num_accepted += segment.drafts.accepted
            outputs = segment.outputs
            if not outputs:
                continue
            story.output_token_ids += outputs
            story.logprobs += [*[None] * (len(outputs) - 1), segment.logprob]
            story.token_steps += [record.step] * len(outputs)
            story.token_times += [record.end_s] * len(outputs)

    def _apply_ends(self, events: Events, step: int, time_s: float) -> None:
        for preemption in events.preempted:
            story = self.stories[preemption.request_id]
            story.num_preemptions += 1
            story.turns.append(Turn("gave way", step, time_s, preemption.slot, preemption.lost_tokens))
            story.slot = None
        for finish in events.finished:
            story = self.stories[finish.request_id]
            story.finish, story.finish_step = finish, step
            story.turns.append(Turn("ended", step, finish.time_s, finish.slot))
            self.finished.append(finish.request_id)
        for verification in events.verified:
            # It may come when the story has been forgotten.
            if (verified := self.stories.get(verification.request_id)) is not None:
                verified.verified = verification
        for release in events.released:
            story = self.stories[release.request_id]
            story.release_step, story.release_s = step, time_s
            story.turns.append(Turn("left", step, time_s, release.slot))

    def output_text(self, story: RequestStory) -> str:
        """A finished request's output as text: without the token, or from the string on, that stopped it."""
        finish, ids = story.finish, story.output_token_ids
        if finish is None or finish.reason != "stop":
            return self.decode(ids)
        if finish.num_text_bytes is None:
            return self.decode(ids[:-1])
        return self._bytes(ids)[: finish.num_text_bytes].decode("utf-8", "replace")

    def decode(self, token_ids: list[int] | tuple[int, ...]) -> str:
        """Text of token ids by their bytes; incomplete UTF-8 shows as the replacement character."""
        return self._bytes(token_ids).decode("utf-8", "replace")

    def _bytes(self, token_ids: list[int] | tuple[int, ...]) -> bytes:
        return b"".join(self.token_bytes.get(token, b"") for token in token_ids)
