"""A vLLM server, followed by its metrics: how many run and wait, how wide its steps are, and no names.

Its counters tell every step and the tokens of all together, so a step that passed alone between two
scrapes has its exact width. Requests are known only if they were sent from here. A scheduler subclass tells
all of it, step by step (`unix:PATH`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from engine.attach.address import Address, Key
from engine.attach.http import Http
from engine.attach.metrics_text import NotMetrics, Samples
from engine.attach.plain import harmless
from engine.attach.prompts import Own, Prompts
from engine.attach.seen import Ended, Part, SlotSeen, StepSeen
from engine.attach.seen_records import SeenRecords, Width
from engine.attach.source import Opened, Queue, SourceLost
from engine.attach.vllm_figures import Scrape, scrape_of
from engine.config import SLOT_LIMIT, EngineConfig
from engine.live.commands import PromptRequest
from engine.live.state import Arriving
from engine.runner import ModelInfo
from engine.stream.metrics import RATE_WINDOW_S
from engine.stream.records import Provenance, Record

#: Seconds between two scrapes at least: one is fifty kilobytes to make, send and read.
SCRAPE_S = 0.25
#: Scrapes take at most this share of the time.
SCRAPE_SHARE = 0.1
#: How long steps wait for the texts of prompts sent from here to catch up, seconds.
HOLD_S = 0.1

_INFERRED = (
    ("steps", "counted by its metrics; told apart only where one passed alone between two scrapes"),
    ("times", "between two scrapes"),
    ("row", "of prompts sent from here alone, in the order they were sent"),
    ("mask", "follows from query and context lengths, of prompts sent from here alone"),
    ("slots", "lanes here for prompts sent from here; vLLM's own number of them is not told"),
    ("mode", "vLLM batches continuously"),
    ("kv", "from the share of its blocks in use"),
)
_ABSENT = (
    ("requests", "its metrics count requests and name none"),
    ("prompt_tokens", "its metrics tell no tokens"),
    ("output_tokens", "its metrics tell no tokens of other clients' requests"),
    ("logprobs", "its metrics tell none; those of prompts sent from here are not asked for"),
    ("budget", "its metrics do not tell max_num_batched_tokens"),
    ("blocks", "its metrics tell no block tables"),
    ("waiting_requests", "its metrics count who waits and name nobody"),
)


class VllmSource:
    """Implements `Source`.

    Args:
        address, key: of the server.
        now_s: monotonic seconds.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        address: Address,
        key: Key,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address, self._key = address, key
        self._clock, self._sleep = now_s, sleep
        self._started_s = now_s()
        self._http: Http | None = None
        self._prompts: Prompts | None = None
        self._indices = count()
        self._records = SeenRecords(self._indices)
        self._before: Scrape | None = None
        self._counts: deque[tuple[float, int | None, int | None]] = deque()
        self._at_s = 0.0
        self._next_s = 0.0
        self._most_running = 1
        #: Lanes of prompts sent from here, and how many of their tokens have been put into steps.
        self._lanes: dict[str, SlotSeen] = {}
        self._fed: dict[str, int] = {}

    def _now(self) -> float:
        return self._clock() - self._started_s

    # -- opening ------------------------------------------------------------------------------

    def open(self) -> Opened:
        """See `Source`."""
        if self._http is not None:
            self._http.close()
        self._http = Http(self._address, self._key)
        scrape = self._scrape()
        model, length = self._model()
        if self._prompts is None:
            # No logprobs: the first ones asked for cost a vLLM on the CPU seconds of compiling, and with
            # it everyone who is served.
            self._prompts = Prompts(self._address, self._key, model, None, self._now, self._indices, n_top=0)
        was = self._before
        if was and was.num_steps and scrape.num_steps and scrape.num_steps > was.num_steps:
            self._records.missed(scrape.num_steps - was.num_steps)
        self._take(scrape)
        self._at_s, self._next_s = self._now(), 0.0
        missing = tuple((name, "it is not among the server's metrics") for name in scrape.missing)
        return Opened(
            info=ModelInfo(
                name=model.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or "its model",
                source=model,
                device="",
                dtype="",
                max_model_len=length,
                has_chat_template=True,
            ),
            config=EngineConfig(
                max_num_seqs=self._num_lanes,
                max_num_batched_tokens=max(2048, self._num_lanes),
                max_model_len=length,
                block_size=scrape.block_size or 16,
                num_blocks=scrape.num_blocks or 1,
            ),
            provenance=Provenance(
                engine="vLLM, by its metrics",
                address=str(self._address),
                inferred=_INFERRED,
                absent=(*_ABSENT, *missing),
            ),
        )

    def _model(self) -> tuple[str, int]:
        """The model's name as prompts must give it, and its longest sequence."""
        assert self._http is not None
        found = self._http.json("/v1/models")
        models = found.get("data") if isinstance(found, dict) else None
        first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
        name, length = first.get("id"), first.get("max_model_len")
        if not isinstance(length, int) or not 1 < length < 1 << 30:
            length = 2048
        return harmless(name) if isinstance(name, str) else "", length

    def _scrape(self) -> Scrape:
        assert self._http is not None
        body = self._http.ask("/metrics")
        if body is None or b"vllm:" not in body:
            raise SourceLost(f"{self._address} has no metrics of vLLM at /metrics any more")
        try:
            return scrape_of(Samples(body.decode("utf-8", "replace")))
        except NotMetrics as exc:
            raise SourceLost(f"{self._address}: {exc}") from None

    @property
    def _num_lanes(self) -> int:
        return min(SLOT_LIMIT, max(self._most_running, 1, *(one.slot + 1 for one in self._lanes.values()), 1))

    def _take(self, scrape: Scrape) -> None:
        self._before = scrape
        self._add_rates(scrape)
        self._most_running = max(self._most_running, scrape.num_running or 0)
        self._records.figures(scrape.figures)
        self._records.num_deferred = scrape.num_waiting

    def _add_rates(self, scrape: Scrape) -> None:
        """Output tokens and steps a second, over the last `RATE_WINDOW_S`, from the server's counts."""
        now = self._now()
        self._counts.append((now, scrape.num_output, scrape.num_steps))
        while len(self._counts) > 2 and self._counts[1][0] <= now - RATE_WINDOW_S:
            self._counts.popleft()
        first_s, output, steps = self._counts[0]
        if now <= first_s:
            return
        for name, rose in (
            ("output_tokens_per_s", _more(output, scrape.num_output)),
            ("steps_per_s", _more(steps, scrape.num_steps)),
        ):
            if rose is not None:
                scrape.figures[name] = round(rose / (now - first_s), 1)

    # -- reading ------------------------------------------------------------------------------

    def read(self, timeout_s: float) -> Sequence[Record]:
        """See `Source`."""
        wait_s = self._next_s - self._now()
        if wait_s > 0:
            self._sleep(min(wait_s, timeout_s))
        if self._now() < self._next_s:
            return ()
        began_s = self._now()
        before, scrape = self._before, self._scrape()
        cost_s = self._now() - began_s
        self._next_s = began_s + max(SCRAPE_S, cost_s / SCRAPE_SHARE)
        assert self._prompts is not None
        self._prompts.news()
        self._take(scrape)
        records: list[Record] = []
        records += self._steps(before, scrape, began_s)
        records += self._records.arrivals(began_s, is_unseen_over=self._is_spent)
        self._at_s = began_s
        return records or self._records.quiet(began_s)

    def _steps(self, before: Scrape | None, now: Scrape, at_s: float) -> list[Record]:
        """The steps between two scrapes; the last ones carry what prompts sent from here were seen to get."""
        passed = _more(before.num_steps if before else None, now.num_steps)
        steps = self._own_steps(at_s)
        if passed is None:
            passed = len(steps)  # not counted: only ours are known
        width = _more(before.num_tokens if before else None, now.num_tokens) if passed == 1 else None
        output = _more(before.num_output if before else None, now.num_output)
        if passed > len(steps):
            self._records.missed(passed - max(1, len(steps)))
        if not steps and passed:
            steps = [StepSeen(self._at_s, at_s, is_seen=passed == 1)]
        known = None if width is None or output is None else Width(width, min(width, output))
        pool = (now.num_blocks, now.figures.get("kv_cache_usage_perc"))
        return [
            record
            for step in steps
            for record in self._records.records(step, self._num_lanes, width=known, pool=pool)
        ]

    def _own_steps(self, at_s: float) -> list[StepSeen]:
        """New tokens of prompts sent from here, laid into steps: each in the last as many as it has."""
        assert self._prompts is not None
        new: list[tuple[Own, SlotSeen, int]] = []
        for own in self._prompts.all.values():
            had = self._fed.get(own.request_id, 0)
            if len(own.tokens) > had or (own.is_over and own.request_id in self._lanes):
                new.append((own, self._lane(own), had))
        total = max((len(own.tokens) - had for own, _, had in new), default=0)
        each = (at_s - self._at_s) / total if total else 0.0
        steps = [
            StepSeen(self._at_s + n * each, self._at_s + (n + 1) * each, is_seen=total == 1)
            for n in range(total)
        ] or ([StepSeen(at_s, at_s)] if new else [])
        for own, seen, had in new:
            first = total - (len(own.tokens) - had)
            for place, number in enumerate(range(had + 1, len(own.tokens) + 1), first):
                steps[place].parts.append(_part(seen, number))
            self._fed[own.request_id] = len(own.tokens)
            if own.is_over:
                steps[-1].ended.append(Ended(seen, len(own.tokens), own.reason, True))
                del self._lanes[own.request_id]
        return steps

    def _lane(self, own: Own) -> SlotSeen:
        if own.request_id not in self._lanes:
            taken = {one.slot for one in self._lanes.values()}
            lane = next(number for number in count() if number not in taken)
            self._lanes[own.request_id] = SlotSeen(
                slot=lane,
                n_ctx=0,
                is_processing=True,
                task=own.index,
                num_prompt=max(1, own.num_prompt or len(own.prompt_token_ids)),
                max_tokens=own.request.max_tokens,
                seed=own.seed,
            )
        return self._lanes[own.request_id]

    def _is_spent(self, own: Own) -> bool:
        """Whether a prompt that is over will be in no step any more."""
        return self._fed.get(own.request_id, 0) >= len(own.tokens)

    # -- prompts ------------------------------------------------------------------------------

    def queue(self) -> Queue | None:
        """See `Source`."""
        arriving = self._records.arriving()
        waiting = self._before.num_waiting if self._before else None
        return Queue(
            waiting_count=waiting or 0,
            arriving=tuple(
                Arriving(own.request_id, own.index, own.request.prompt, own.request.max_tokens, "next_step")
                for own in arriving[:64]
            ),
        )

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        """See `Source`."""
        if self._prompts is not None:
            self._records.sent(self._prompts.send(requests))

    def cancel(self, request_id: str) -> None:
        """See `Source`."""
        if self._prompts is not None:
            self._prompts.cancel(request_id)

    def close(self) -> None:
        """See `Source`."""
        if self._prompts is not None:
            self._prompts.close()
        if self._http is not None:
            self._http.close()


def _more(before: int | None, now: int | None) -> int | None:
    """How much a counter rose; None: it is not told, or began anew."""
    return None if before is None or now is None or now < before else now - before


def _part(seen: SlotSeen, number: int) -> Part:
    if number == 1:
        return Part(seen, True, 0, seen.num_prompt, 1, True)
    return Part(seen, False, seen.num_prompt + number - 2, 1, number)
