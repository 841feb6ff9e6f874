"""What must always hold, whatever happens: the numbered properties of the design, on random lives."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import solo_outputs
from scenario import Life, Scenario, pressed, scenarios, sharing

from engine.fake import FakeRunner
from engine.request import Request, RequestStatus
from engine.scheduling.layouts import step_cost
from engine.scheduling.modes import MODES
from engine.scheduling.policies.priority import STEPS_PER_LEVEL
from engine.step.geometry import lay_out
from engine.step.mask import query_runs
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics
from engine.stream.records import Record, StepRecord


def check_owners(life: Life, record: StepRecord) -> None:
    """1, 2: no slot has two owners; a block as many as hold it, and one alone without prefix caching;
    free (cached included) + owned = total."""
    scheduler = life.engine.scheduler
    slots = [r.slot for r in scheduler.running] + list(scheduler.held)
    assert len(slots) == len(set(slots)) and None not in slots
    tables, pool = scheduler.kv.tables, scheduler.kv.pool
    holders = Counter(block for table in tables.values() for block in table)
    assert all(pool.holders(block) == holders[block] for block in range(pool.num_blocks))
    assert all(len(table) == len(set(table)) for table in tables.values())
    if not life.has_cached:
        assert not holders or max(holders.values()) == 1
    assert len(holders) + pool.num_free == pool.num_blocks == scheduler.config.num_blocks
    assert pool.num_allocated - pool.num_freed == len(holders)
    assert pool.num_extra_holders == holders.total() - len(holders)
    assert 0 <= record.cached_blocks == pool.num_cached <= record.free_blocks == pool.num_free
    reusable = reusable_at(life, record)
    assert len(reusable) == record.cached_blocks and not reusable & set(holders)
    assert all(pool.is_indexed(block) and not pool.holders(block) for block in reusable)
    owners = {r.request_id for r in scheduler.running}
    owners |= {h.request.request_id for h in scheduler.held.values() if h.has_blocks}
    assert set(tables) <= owners
    size = scheduler.config.block_size
    for request in scheduler.running:
        table = tables.get(request.request_id, [])
        assert len(table) * size >= request.num_computed_tokens
        for place, block in enumerate(table):
            # Only what a forward has filled may be found by others.
            assert not pool.is_indexed(block) or (place + 1) * size <= request.num_computed_tokens
    assert record.kv_tokens <= len(holders) * size


def reusable_at(life: Life, record: StepRecord) -> set[int]:
    """The free blocks with a prefix, as a reader finds them that has nothing but the records."""
    if not record.cached_blocks:
        return set()
    said = next(one.cached_runs for one in reversed(life.steps) if one.cached_runs is not None)
    return {block for first, stop in said for block in range(first, stop)}


def check_sharing(life: Life, record: StepRecord) -> None:
    """1: what is shared is read alone: no row writes into a block that another row holds."""
    size = life.engine.config.block_size
    written = [
        segment.block_ids[position // size]
        for segment in record.segments
        if segment.kind != "dead"
        for position in range(segment.position, segment.position + segment.q_len)
    ]
    writers = Counter(
        block
        for segment in record.segments
        if segment.kind != "dead"
        for block in set(segment.block_ids[segment.position // size :])
    )
    holders = Counter(block for segment in record.segments for block in segment.block_ids)
    assert all(writers[block] == 1 == holders[block] for block in written)


def check_reasons(life: Life, record: StepRecord) -> None:
    """Why the head of the queue did not enter is true, and everyone else stands behind it."""
    scheduler = life.engine.scheduler
    if not record.waiting:
        assert record.waiting_count == 0
        return
    head, *others = record.waiting
    waves = record.mode == "static"
    assert head.reason in {"no_free_slot", "token_budget", "kv_blocks", "wave", "draining"}
    assert (head.reason in ("wave", "draining")) <= waves
    assert (head.reason == "draining") == (record.draining > 0 and waves)
    reasons = {p.reason for p in record.events.preempted}
    if reasons:
        assert not record.events.admitted
        assert head.reason == ("kv_blocks" if "kv_blocks" in reasons else "no_free_slot") or waves
    elif head.reason == "no_free_slot":
        assert len(record.segments) >= record.max_num_seqs or scheduler.running
    own = head.reason in ("token_budget", "kv_blocks")
    for other in others:
        assert (other.reason, other.blocked_by) == (("behind", head.request_id) if own else (head.reason, ""))


def check_limits(life: Life, record: StepRecord) -> None:
    """3, 5: cost within the budget, counts at least 1, every position accounted for."""
    counts = [segment.q_len for segment in record.segments]
    assert min(counts) >= 1
    assert step_cost(record.layout, counts) == record.tokens.total == record.shape[0] * record.shape[1]
    assert record.tokens.total <= record.max_num_batched_tokens
    for admission in record.events.admitted:
        assert admission.slot < record.max_num_seqs
    if record.events.admitted:
        assert len(record.segments) <= record.max_num_seqs
    by_kind = Counter()
    for segment in record.segments:
        by_kind[segment.kind] += segment.q_len
    assert by_kind["dead"] == record.tokens.dead
    useful = record.tokens.prompt + record.tokens.decode + record.tokens.recomputed
    assert by_kind["prefill"] + by_kind["decode"] == useful
    assert (
        min(record.tokens.padding, record.tokens.prompt, record.tokens.decode, record.tokens.recomputed) >= 0
    )


class CheckProgress:
    """4, 6: `num_computed_tokens` rises by exactly what was scheduled (and by what shared blocks held on
    entering), falls only when it is lost; a token is sampled only in the step in which its request has
    caught up."""

    def __init__(self) -> None:
        self.computed: Counter[str] = Counter()
        self.produced: Counter[str] = Counter()
        self.epoch = 1

    def __call__(self, life: Life, record: StepRecord) -> None:
        if record.epoch != self.epoch:
            self.computed.clear()
            self.epoch = record.epoch
        for preemption in record.events.preempted:
            assert preemption.lost_tokens == self.computed[preemption.request_id]
            self.computed[preemption.request_id] = 0
        for admission in record.events.admitted:
            assert self.computed[admission.request_id] == 0
            self.computed[admission.request_id] = admission.num_cached_tokens
            assert admission.num_cached_tokens % life.engine.config.block_size == 0
            assert life.has_cached or not admission.num_cached_tokens
        ended = {finish.request_id for finish in record.events.finished}
        for segment in record.segments:
            if segment.kind == "dead":
                continue
            request = life.requests[segment.request_id]
            assert segment.position == self.computed[segment.request_id]
            stop = segment.position + segment.q_len
            total = request.num_prompt_tokens + self.produced[segment.request_id]
            assert stop <= total
            aborted = segment.request_id in ended and request.status in (
                RequestStatus.FINISHED_ABORTED,
                RequestStatus.FINISHED_ERROR,
            )
            if not aborted:
                assert (segment.sampled is not None) == (stop == total)
                self.computed[segment.request_id] = stop
                assert request.num_computed_tokens == stop
            else:
                assert segment.sampled is None
            self.produced[segment.request_id] += segment.sampled is not None


def check_all(record_checks: list) -> object:
    def check(life: Life, record: StepRecord) -> None:
        for one in record_checks:
            one(life, record)

    return check


@given(st.one_of(scenarios(), pressed(), sharing()))
def test_every_step_keeps_the_books(scenario: Scenario) -> None:
    Life(scenario).play(
        check_all([check_owners, check_sharing, check_limits, check_reasons, CheckProgress()])
    )


@given(st.one_of(scenarios(), pressed(), sharing()))
def test_every_request_ends_exactly_once_and_a_drained_engine_is_empty(scenario: Scenario) -> None:
    life = Life(scenario)
    life.play()
    ends = Counter(f.request_id for r in life.records for f in r.events.finished)
    assert ends == Counter(dict.fromkeys(life.asks, 1))
    scheduler = life.engine.scheduler
    assert not scheduler.running and not scheduler.held and not len(scheduler.waiting)
    assert not scheduler.kv.tables and scheduler.kv.pool.num_free == scheduler.config.num_blocks
    assert not life.engine.requests and not life.engine.has_work
    assert life.engine.step() is None


@given(st.one_of(scenarios(), pressed(), sharing()))
def test_no_token_follows_an_end(scenario: Scenario) -> None:
    life = Life(scenario)
    life.play()
    ended: set[str] = set()
    for record in life.records:
        if isinstance(record, StepRecord):
            for segment in record.segments:
                assert segment.kind == "dead" or segment.request_id not in ended
        ended |= {f.request_id for f in record.events.finished}
    for request_id in life.cancelled & set(life.requests):
        assert life.requests[request_id].status.is_finished


@given(st.one_of(scenarios(), pressed(), sharing()))
def test_outputs_do_not_depend_on_anything_but_the_request(scenario: Scenario) -> None:
    life = Life(scenario)
    life.play()
    eos = set() if scenario.eos is None else {scenario.eos}
    for request_id, request in life.requests.items():
        ask = life.asks[request_id]
        alone = solo_outputs(list(ask.prompt), ask.params, eos, scenario.config.max_model_len)
        cut_short = request.status in (RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR)
        if cut_short:
            assert request.output_token_ids == alone[: request.num_output_tokens]
        else:
            assert request.output_token_ids == alone


@given(scenarios(disturbed=False))
def test_ignored_depends_on_sizes_alone(scenario: Scenario) -> None:
    life = Life(scenario)
    life.play()
    config = scenario.config
    for request_id, ask in life.asks.items():
        longest = min(len(ask.prompt) + ask.params.max_tokens, config.max_model_len)
        fits = len(ask.prompt) < config.max_model_len and longest - 1 <= config.num_kv_tokens
        assert (request_id in life.requests) == fits


def overtaken_steps(policy: str, early: Request, late: Request) -> int:
    """How many steps later than `early` a request may arrive and still enter before it."""
    if policy == "priority":
        return STEPS_PER_LEVEL * (early.priority - late.priority)
    if policy == "shortest-first":
        return early.params.max_tokens - late.params.max_tokens
    return -1


@given(st.one_of(scenarios(disturbed=False), pressed()))
def test_nobody_starves_overtaking_is_bounded_by_ageing(scenario: Scenario) -> None:
    """10: who arrived first is overtaken only by those that the policy's constant key lets pass."""
    acts = [act for act in scenario.acts if act.kind != "policy"]
    life = Life(Scenario(scenario.config, scenario.asks, acts, eos=scenario.eos))
    life.play()
    policy = scenario.config.policy
    entries = [a.request_id for r in life.steps for a in r.events.admitted if not a.resumed]
    order = [life.requests[request_id] for request_id in entries]
    for place, late in enumerate(order):
        for early in order[place + 1 :]:
            if early.index < late.index:
                assert late.arrival_step - early.arrival_step <= overtaken_steps(policy, early, late)


@given(st.one_of(scenarios(), pressed(), sharing()))
def test_packed_mask_is_the_direct_sum_of_causal_masks(scenario: Scenario) -> None:
    life = Life(scenario)
    life.play()
    for plan in life.runner.plans:
        geometry = lay_out(plan, life.engine.arena)
        runs = list(query_runs(geometry.spans, geometry.shape))
        assert len(runs) == geometry.shape[0] * geometry.shape[1]
        seen = set()
        for run in runs:
            assert 0 <= run.start < run.stop <= geometry.num_keys, "a query without a key"
            if run.segment is None:
                continue
            row, span = plan.rows[run.segment], geometry.spans[run.segment]
            offset = run.column - span.q_start
            own = range(span.kv_start, span.kv_start + span.kv_len)
            assert run.start == own.start and run.stop - 1 in own
            assert run.stop - run.start == row.kv_len - (len(row.token_ids) - 1 - offset)
            seen.add((run.segment, offset))
        assert seen == {(i, o) for i, row in enumerate(plan.rows) for o in range(len(row.token_ids))}


def replay(records: list[Record]) -> tuple[Ledger, Metrics]:
    ledger = Ledger()
    metrics = Metrics(ledger)
    for record in records:
        ledger.apply(record)
        metrics.apply(record)
    return ledger, metrics


@given(st.one_of(scenarios(), pressed(), sharing()))
def test_replaying_the_records_gives_the_same_outputs_and_metrics(scenario: Scenario) -> None:
    life = Life(scenario)
    life.play()
    ledger, metrics = replay(life.records)
    for request_id, request in life.requests.items():
        story = ledger[request_id]
        assert story.output_token_ids == request.output_token_ids
        assert story.num_preemptions == request.num_preemptions or life.engine.epoch > 1
        assert story.finish is not None and story.finish.num_output_tokens == request.num_output_tokens
        assert ledger.decode(story.output_token_ids) == "".join(f"{t} " for t in request.output_token_ids)
    _, metrics_again = replay(life.records)
    assert metrics_again.snapshot() == metrics.snapshot()
    assert metrics_again.runs == metrics.runs
    sampled = sum(s.sampled is not None for r in life.steps for s in r.segments)
    assert sum(len(s.output_token_ids) for s in ledger.stories.values()) == sampled
    assert sum(run.output_tokens for run in metrics.runs) == sampled
    assert metrics.current_run is None


@settings(max_examples=30)
@given(scenarios(disturbed=False), st.sampled_from(list(MODES)))
def test_two_equal_lives_leave_equal_records(scenario: Scenario, mode: str) -> None:
    first, second = Life(scenario), Life(scenario)
    first.play()
    second.play()
    assert first.records == second.records


@settings(max_examples=40)
@given(st.one_of(scenarios(disturbed=False), pressed()))
def test_static_never_admits_while_anyone_runs(scenario: Scenario) -> None:
    life = Life(
        Scenario(scenario.config, scenario.asks, [], eos=scenario.eos), FakeRunner(eos_token_id=scenario.eos)
    )
    life.engine.set_mode("static")
    running: set[str] = set()

    def check(life: Life, record: StepRecord) -> None:
        if record.events.admitted:
            assert not running, "admitted into a wave that is under way"
        for admission in record.events.admitted:
            running.add(admission.request_id)
        running.difference_update(p.request_id for p in record.events.preempted)
        running.difference_update(f.request_id for f in record.events.finished)
        assert record.events.barrier == (not running and not record.failed)

    life.play(check)
