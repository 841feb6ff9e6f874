"""Rules of the mechanism, one at a time, on a real engine with the fake model."""

from __future__ import annotations

import msgspec
import pytest
from oracle import solo_outputs
from scenario import FailingRunner, tick_clock

from engine.config import ConfigError, EngineConfig
from engine.engine import Engine, StepLost
from engine.fake import FakeRunner
from engine.request import IllegalTransition, Request, RequestStatus, SamplingParams
from engine.runner import RunnerDied
from engine.step.plan import Plan, Reply
from engine.stream.records import StepRecord


def make(runner: FakeRunner | None = None, **config: object) -> Engine:
    runner = runner or FakeRunner()
    return Engine(EngineConfig(**config), runner, runner.info, clock=tick_clock())  # type: ignore[arg-type]


def ask(engine: Engine, length: int, max_tokens: int, first: int = 0) -> str:
    return engine.add_request([first + i for i in range(length)], SamplingParams(max_tokens=max_tokens))


def step(engine: Engine) -> StepRecord:
    record = engine.step()
    assert record is not None
    return record


def fed(record: StepRecord) -> dict[str, int]:
    return {segment.request_id: segment.q_len for segment in record.segments}


def run_out(engine: Engine) -> list[StepRecord]:
    records = []
    while engine.has_work:
        records.append(step(engine))
    return records


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous"])
@pytest.mark.parametrize(("length", "pieces"), [(11, [11]), (12, [12]), (13, [12, 1]), (30, [12, 12, 6])])
def test_a_prompt_longer_than_the_budget_is_cut_and_one_that_fits_is_not(
    mode: str, length: int, pieces: list[int]
) -> None:
    engine = make(mode=mode, max_num_batched_tokens=12)
    ask(engine, length, 2)
    records = run_out(engine)
    assert [r.segments[0].q_len for r in records] == [*pieces, 1]
    assert [r.segments[0].num_prompt_left for r in records][: len(pieces)] == [
        length - sum(pieces[: i + 1]) for i in range(len(pieces))
    ]


def test_a_prompt_that_does_not_fit_beside_the_running_waits_whole_and_holds_up_those_behind() -> None:
    engine = make(max_num_batched_tokens=10)
    first, second, third = ask(engine, 4, 3), ask(engine, 8, 2), ask(engine, 1, 2)
    record = step(engine)
    assert fed(record) == {first: 4}
    assert [(w.request_id, w.reason, w.blocked_by) for w in record.waiting] == [
        (second, "token_budget", ""),
        (third, "behind", second),
    ]
    assert fed(step(engine)) == {first: 1, second: 8, third: 1}


def test_prefill_and_decode_share_a_step() -> None:
    engine = make()
    first = ask(engine, 5, 9)
    step(engine)
    second = ask(engine, 7, 2)
    assert fed(step(engine)) == {first: 1, second: 7}


def test_waiting_reasons_name_the_full_slots_and_the_wave() -> None:
    engine = make(max_num_seqs=2)
    ask(engine, 3, 2), ask(engine, 3, 9), ask(engine, 3, 2)
    assert [w.reason for w in step(engine).waiting] == ["no_free_slot"]
    static = make(max_num_seqs=2, mode="static")
    ask(static, 3, 1), ask(static, 3, 9), ask(static, 3, 2)
    step(static)
    (waiting,) = step(static).waiting
    assert (waiting.reason, waiting.idle_slots) == ("wave", 1)


def test_static_holds_a_slot_until_the_barrier_and_feeds_its_last_token_at_its_last_position() -> None:
    engine = make(mode="static", max_num_seqs=2)
    short, long = ask(engine, 3, 2), ask(engine, 4, 5)
    records = run_out(engine)
    assert [len(r.segments) for r in records] == [2] * 5
    dead = [s for r in records for s in r.segments if s.kind == "dead"]
    assert len(dead) == 3 and {s.request_id for s in dead} == {short}
    assert {(s.position, s.kv_len, s.token_ids) for s in dead} == {(4, 5, dead[0].token_ids)}
    assert dead[0].token_ids == (records[1].segments[0].sampled,)
    assert all(s.sampled is None for s in dead)
    assert [s.held_steps for r in records for s in r.slots if s.held] == [1, 2, 3]
    assert [r.events.barrier for r in records] == [False] * 4 + [True]
    assert [e.request_id for e in records[-1].events.released] == [short, long]


def test_switching_to_static_makes_a_wave_of_the_running_and_admits_nobody_until_it_ends() -> None:
    engine = make(max_num_seqs=2)
    ask(engine, 3, 4), ask(engine, 3, 8), ask(engine, 3, 2)
    step(engine)
    engine.set_mode("static")
    record = step(engine)
    assert (record.mode, record.layout, record.draining) == ("static", "padded", 2)
    assert [w.reason for w in record.waiting] == ["draining"]
    rest = run_out(engine)
    entered = [(r.step, a.request_id) for r in rest for a in r.events.admitted]
    assert entered == [(9, "r2")] and [r.draining for r in rest][-1] == 0


def test_switching_from_static_frees_held_slots_before_the_next_schedule() -> None:
    engine = make(mode="static", max_num_seqs=2)
    short = ask(engine, 3, 1)
    ask(engine, 3, 8), ask(engine, 5, 2)
    step(engine), step(engine)
    engine.set_mode("continuous")
    record = step(engine)
    assert [r.request_id for r in record.events.released] == [short]
    assert [a.request_id for a in record.events.admitted] == ["r2"]
    assert record.layout == "ragged" and record.tokens.dead == 0


def test_a_half_fed_prompt_goes_on_by_the_new_modes_rule_without_losing_a_token() -> None:
    engine = make(max_num_batched_tokens=8)
    request = engine.requests[ask(engine, 20, 3)]
    step(engine)
    engine.set_mode("static")
    step(engine)
    engine.set_mode("continuous-padded")
    run_out(engine)
    assert request.output_token_ids == solo_outputs(list(range(20)), request.params)


def test_a_cancel_in_a_wave_leaves_a_held_slot_and_frees_it_in_continuous() -> None:
    for mode, held in (("static", 1), ("continuous", 0)):
        engine = make(mode=mode, max_num_seqs=2)
        first = ask(engine, 3, 8)
        ask(engine, 3, 8)
        step(engine)
        assert engine.abort_request(first) and not engine.abort_request(first)
        record = step(engine)
        assert record.tokens.dead == held
        assert record.events.finished[0].reason == "abort"


def test_a_cancel_during_the_forward_drops_its_token() -> None:
    engine = make()
    first, second = ask(engine, 3, 8), ask(engine, 3, 8)
    record = engine.step(lambda: [first])
    assert record is not None
    assert [s.sampled is None for s in record.segments] == [True, False]
    assert [f.request_id for f in record.events.finished] == [first]
    assert fed(step(engine)) == {second: 1}


def test_the_last_cancel_of_a_wave_ends_it() -> None:
    engine = make(mode="static", max_num_seqs=2)
    first, second, third = ask(engine, 3, 8), ask(engine, 3, 8), ask(engine, 3, 1)
    step(engine)
    engine.abort_request(first), engine.abort_request(second)
    record = step(engine)
    assert fed(record) == {third: 3} and record.events.barrier


def test_fewer_slots_than_running_kills_nobody() -> None:
    engine = make(max_num_seqs=3)
    ids = [ask(engine, 3, n) for n in (2, 6, 8, 2)]
    step(engine)
    engine.configure(msgspec.structs.replace(engine.config, max_num_seqs=1))
    record = step(engine)
    assert set(fed(record)) == set(ids[:3])
    rest = run_out(engine)
    entered = [(r.step, a.slot) for r in rest for a in r.events.admitted]
    assert entered == [(9, 0)]


def test_more_slots_admit_at_the_next_step() -> None:
    engine = make(max_num_seqs=1)
    ask(engine, 3, 4), ask(engine, 3, 4)
    step(engine)
    engine.configure(msgspec.structs.replace(engine.config, max_num_seqs=2))
    record = step(engine)
    assert [a.slot for a in record.events.admitted] == [1]
    assert [(c.name, c.before, c.after) for c in record.events.changed] == [("max_num_seqs", "1", "2")]


def test_what_is_fixed_for_an_engines_life_cannot_change() -> None:
    engine = make()
    with pytest.raises(ConfigError, match="cannot change"):
        engine.configure(msgspec.structs.replace(engine.config, block_size=8))


def test_out_of_blocks_the_last_admitted_gives_way_and_resumes_with_the_same_tokens() -> None:
    engine = make(block_size=2, num_blocks=8, max_num_seqs=2)
    first, second = ask(engine, 4, 8), ask(engine, 4, 8, first=50)
    requests = [engine.requests[first], engine.requests[second]]
    records = run_out(engine)
    (gone,) = [p for r in records for p in r.events.preempted]
    assert gone.request_id == second and gone.lost_tokens > 4
    assert sum(r.tokens.recomputed for r in records) == gone.lost_tokens
    assert [a.request_id for r in records for a in r.events.admitted if a.resumed] == [second]
    assert requests[1].num_preemptions == 1
    for request in requests:
        assert request.output_token_ids == solo_outputs(request.prompt_token_ids, request.params)


def test_out_of_blocks_held_slots_give_theirs_before_anyone_is_preempted() -> None:
    engine = make(mode="static", block_size=1, num_blocks=12, max_num_seqs=2)
    ask(engine, 4, 1), ask(engine, 4, 8)
    records = run_out(engine)
    assert not any(r.events.preempted for r in records)
    dead = [s for r in records for s in r.segments if s.kind == "dead"]
    assert dead[0].kv_len == 5 and dead[-1].kv_len == 1
    assert all(r.tokens.dead == 1 for r in records[1:])


@pytest.mark.parametrize(
    ("length", "max_tokens", "fits"),
    [(5, 12, True), (5, 13, False), (16, 1, True), (19, 1, False), (20, 1, False)],
)
def test_what_can_never_fit_is_ignored_at_once_and_blocks_nobody(
    length: int, max_tokens: int, fits: bool
) -> None:
    engine = make(block_size=4, num_blocks=4, max_model_len=20)
    request_id = ask(engine, length, max_tokens)
    behind = ask(engine, 2, 1)
    records = run_out(engine)
    ignored = [f for f in records[0].events.finished if f.reason == "ignored"]
    assert [f.request_id for f in ignored] == ([] if fits else [request_id])
    assert any(behind in fed(record) for record in records)
    if not fits:
        assert ignored[0].slot is None and "tokens" in ignored[0].error


def test_generation_stops_at_max_model_len() -> None:
    engine = make(max_model_len=10)
    request = engine.requests[ask(engine, 7, 50)]
    run_out(engine)
    assert request.num_tokens == 10 and request.status is RequestStatus.FINISHED_LENGTH_CAPPED


def test_a_failing_forward_ends_the_requests_in_it_and_the_engine_goes_on() -> None:
    engine = make(FailingRunner({2}), max_num_seqs=2)
    lost = [ask(engine, 3, 5), ask(engine, 3, 5)]
    third = ask(engine, 3, 2)
    waiting = engine.requests[third]
    step(engine)
    record = step(engine)
    assert record.failed and {f.request_id for f in record.events.finished} == set(lost)
    assert {(f.reason, f.error) for f in record.events.finished} == {
        ("error", "the forward failed on purpose")
    }
    assert record.free_blocks == record.num_blocks
    run_out(engine)
    assert waiting.output_token_ids == solo_outputs([0, 1, 2], waiting.params)


class DyingRunner(FakeRunner):
    def run(self, plan: Plan) -> Reply:
        if plan.step == 2:
            raise RunnerDied("killed by signal 9")
        return super().run(plan)


def test_when_the_runner_dies_the_step_is_recorded_and_the_others_start_over() -> None:
    engine = make(DyingRunner(), max_num_seqs=2, max_num_batched_tokens=8)
    first = ask(engine, 3, 5)
    step(engine)
    second = ask(engine, 7, 4)
    with pytest.raises(StepLost) as lost:
        engine.step()
    assert lost.value.record.failed
    assert {f.request_id: f.reason for f in lost.value.record.events.finished} == {
        first: "error",
        second: "error",
    }
    third = ask(engine, 4, 3)
    engine.reset(2, "the model process was started again")
    request = engine.requests[third]
    records = run_out(engine)
    assert {r.epoch for r in records} == {2}
    assert request.output_token_ids == solo_outputs([0, 1, 2, 3], request.params)


def test_a_reset_between_steps_keeps_outputs_and_order() -> None:
    engine = make(max_num_seqs=3)
    ids = [ask(engine, 3 + n, 6, first=9 * n) for n in range(3)]
    requests = [engine.requests[i] for i in ids]
    step(engine), step(engine)
    engine.reset(2, "the model process was started again")
    record = step(engine)
    assert [a.request_id for a in record.events.admitted] == ids
    assert record.tokens.recomputed == 3 + 4 + 5 + 3
    run_out(engine)
    for request in requests:
        assert request.output_token_ids == solo_outputs(request.prompt_token_ids, request.params)


def test_stop_ids_end_a_request_and_eos_can_be_ignored() -> None:
    alone = solo_outputs([0, 1, 2], SamplingParams(max_tokens=8))
    engine = make(FakeRunner(eos_token_id=alone[3]))
    stopped = engine.requests[ask(engine, 3, 8)]
    ignoring = engine.add_request([0, 1, 2], SamplingParams(max_tokens=8, ignore_eos=True))
    early = engine.add_request(
        [0, 1, 2], SamplingParams(max_tokens=8, stop_token_ids=(alone[1],), ignore_eos=True)
    )
    kept = [stopped, engine.requests[ignoring], engine.requests[early]]
    run_out(engine)
    assert [r.output_token_ids for r in kept] == [alone[:4], alone, alone[:2]]
    assert [r.status.name for r in kept] == ["FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED"]


def test_bad_prompts_are_refused_in_words() -> None:
    engine = make()
    with pytest.raises(ValueError, match="at least one token"):
        engine.add_request([], SamplingParams())
    with pytest.raises(ValueError, match="from 0 to 999"):
        engine.add_request([5, 1000], SamplingParams())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (n, v)
        for n in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "num_blocks")
        for v in (0, -1)
    ]
    + [("max_model_len", 1), ("max_num_seqs", 257), ("max_num_batched_tokens", 2)],
)
def test_limits_that_cannot_work_are_refused_in_words(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        EngineConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": float("nan")},
        {"n_logprobs": -1},
        {"n_logprobs": 21},
        {"stop": ("",)},
        {"stop": ("end", "\ud800")},
    ],
)
def test_sampling_parameters_that_cannot_work_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SamplingParams(**bad)  # type: ignore[arg-type]


def test_unlisted_transitions_raise() -> None:
    request = Request("r0", 0, [1], SamplingParams())
    with pytest.raises(IllegalTransition):
        request.move_to(RequestStatus.FINISHED_STOPPED)
    request.move_to(RequestStatus.RUNNING)
    request.move_to(RequestStatus.FINISHED_ABORTED)
    with pytest.raises(IllegalTransition):
        request.move_to(RequestStatus.RUNNING)


def test_the_bytes_of_every_token_id_of_a_record_stand_once_in_the_stream() -> None:
    runner = FakeRunner()
    engine = Engine(
        EngineConfig(), runner, runner.info, clock=tick_clock(), token_bytes=lambda t: b"%d" % t, n_top=3
    )
    ask(engine, 3, 6), ask(engine, 4, 6)
    records = run_out(engine)
    known = [token for r in records for token, _ in r.events.tokens]
    assert len(known) == len(set(known))
    named = {t for r in records for s in r.segments for t in s.token_ids}
    named |= {t for r in records for s in r.segments for t, _ in s.top}
    named |= {s.sampled for r in records for s in r.segments if s.sampled is not None}
    assert named == set(known)
