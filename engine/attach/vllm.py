"""A vLLM server, followed by its metrics: how many run and wait, how wide its steps are, and no names.

Its counters tell every step and the tokens of all together, so a step that passed alone between two
scrapes has its exact width. Requests are known only if they were sent from here. A scheduler subclass tells
all of it, step by step (`unix:PATH`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from engine.attach.address import Address, Key
from engine.attach.asking import AskingSource, queue_of
from engine.attach.metrics_text import NotMetrics, Samples
from engine.attach.own_lanes import OwnLanes
from engine.attach.seen import StepSeen
from engine.attach.seen_records import NOT_YET
from engine.attach.served import served_model
from engine.attach.source import Opened, Queue, SourceLost
from engine.attach.vllm_facts import NULL_BLOCKS
from engine.attach.vllm_figures import Scrape, rise, scrape_of, sure_to_run, width_between
from engine.config import SLOT_LIMIT, EngineConfig
from engine.runner import ModelInfo
from engine.stream.metrics import RATE_WINDOW_S
from engine.stream.records import Provenance, Record

#: Seconds between two scrapes at least: one is fifty kilobytes to make, send and read.
SCRAPE_S = 0.25
#: Scrapes take at most this share of the time: while one is made, vLLM's front end streams nobody's tokens.
SCRAPE_SHARE = 0.02

_INFERRED = (
    ("steps", "its metrics count them; those of prompts sent from here are told apart by when tokens came"),
    ("times", "when tokens of prompts sent from here came, else between two scrapes"),
    ("row", "of prompts sent from here alone, in the order they were sent; a prompt whole in its last step"),
    ("mask", "follows from query and context lengths, of prompts sent from here alone"),
    ("mode", "vLLM batches continuously"),
    ("kv", "from the share of its blocks in use"),
)
_ABSENT = (
    ("requests", "its metrics count requests and name none"),
    ("prompt_tokens", "its metrics tell no tokens"),
    ("output_tokens", "its metrics tell no tokens of other clients' requests"),
    ("logprobs", "its metrics tell none; those of prompts sent from here are not asked for"),
    ("slots", "its metrics do not tell max_num_seqs; there are as many as were seen to run at once"),
    ("budget", "its metrics do not tell max_num_batched_tokens"),
    ("blocks", "its metrics tell no block tables"),
    ("waiting_requests", "its metrics count who waits and name nobody"),
)


class VllmSource(AskingSource):
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
        self._lanes = OwnLanes()
        self._before: Scrape | None = None
        self._counts: deque[tuple[float, int | None, int | None]] = deque()
        #: Steps the server has counted and no record tells of; below zero, the other way round.
        self._untold = 0
        #: Where the last step that was told ended.
        self._told_s = 0.0
        #: When it was scraped last, and when it is next.
        self._at_s = self._next_s = 0.0
        self._most_running = 1

    # -- opening ------------------------------------------------------------------------------

    def open(self) -> Opened:
        """See `Source`."""
        self._connect()
        scrape = self._scrape()
        model, length = served_model(self._http)
        # No logprobs: the first ones asked for cost a vLLM on the CPU seconds of compiling, and with
        # it everyone who is served.
        self._take_prompts(model, None, n_top=0)
        self._begin_again(scrape)
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

    def _begin_again(self, scrape: Scrape) -> None:
        """What the server counted while nobody looked is missing; one that was started anew counts anew."""
        was = self._before
        passed = rise(was.num_steps, scrape.num_steps) if was else 0
        if passed is None:
            self._untold = 0
            self._counts.clear()
        else:
            self._untold += passed

    def _scrape(self) -> Scrape:
        body = self._http.ask("/metrics")
        if body is None or b"vllm:" not in body:
            raise SourceLost(f"{self._address} has no metrics of vLLM at /metrics any more")
        try:
            return scrape_of(Samples(body.decode("utf-8", "replace")))
        except NotMetrics as exc:
            raise SourceLost(f"{self._address}: {exc}") from None

    @property
    def _num_lanes(self) -> int:
        return min(SLOT_LIMIT, max(self._most_running, self._lanes.most))

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
            ("output_tokens_per_s", rise(output, scrape.num_output)),
            ("steps_per_s", rise(steps, scrape.num_steps)),
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
        records = self._steps(before, scrape, began_s)
        self._at_s = began_s
        pending_s = self._lanes.pending_s
        at_s = max(self._told_s, began_s if pending_s is None else min(pending_s, began_s))
        records += self._records.arrivals(at_s, is_unseen_over=self._lanes.is_spent)
        return records or self._records.quiet(at_s)

    def _steps(self, before: Scrape | None, now: Scrape, at_s: float) -> list[Record]:
        """The steps between two scrapes: those that made tokens of prompts sent from here, and one for all
        others."""
        assert self._prompts is not None
        steps = self._lanes.steps(self._prompts.all, self._told_s, at_s, sure_to_run(before, now))
        num_known = sum(bool(step.parts) for step in steps)
        passed = rise(before.num_steps, now.num_steps) if before else None
        was_even = not self._untold
        if passed is None:
            self._untold = 0
        else:
            self._untold += passed - num_known
        # One that is under way may have been counted, and its tokens not have been heard.
        missed = max(0, self._untold - self._lanes.is_under_way)
        self._untold -= missed
        if missed and not num_known:
            # The last of them; all are taken to have been equally long.
            each_s = max(0.0, at_s - max(self._told_s, self._at_s)) / missed
            steps = [StepSeen(at_s - each_s, at_s, is_seen=missed == 1, is_whole=False), *steps]
            missed -= 1
        self._records.missed(missed)
        is_alone = passed == 1 and was_even and not self._untold
        width = width_between(before, now) if before and is_alone else None
        pool = (now.num_blocks, now.figures.get("kv_cache_usage_perc"))
        records: list[Record] = []
        for step in steps:
            records += self._records.records(
                step, self._num_lanes, width=width, pool=pool, reserved_blocks=NULL_BLOCKS
            )
            self._told_s = step.end_s
        return records

    # -- prompts ------------------------------------------------------------------------------

    def queue(self) -> Queue | None:
        """See `Source`."""
        arriving = self._records.arriving()
        waiting = self._before.num_waiting if self._before else None
        return queue_of(
            arriving,
            lambda _: NOT_YET,
            # Those sent from here are among those it counts.
            waiting_count=max(0, (waiting or 0) - sum(not own.is_held for own in arriving)),
            num_running=(self._before.num_running or 0) if self._before else 0,
        )
