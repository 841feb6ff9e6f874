"""The trace for Perfetto keeps the format's rules and says what the records say."""

from __future__ import annotations

import pytest
from made_runs import HOSTILE, TRACES, crowded_run, hostile_run, recorded
from trace_event_format import checked

from cbtui.export.perfetto import ENGINE, QUEUE, SLOTS, trace_json


@pytest.mark.parametrize("mode", TRACES)
def test_recorded_runs_keep_the_format(mode: str) -> None:
    checked(trace_json(recorded(mode)))


def test_a_run_with_preemptions_keeps_the_format_and_names_every_wait() -> None:
    run = crowded_run()
    events = checked(trace_json(run))
    preempted = sum(story.num_preemptions for story in run.stories)
    assert preempted > 0
    waits = [event for event in events if event["ph"] == "b"]
    assert len(waits) == len(run.stories) + preempted
    assert sum(event["name"].endswith("preempted") for event in events if event["ph"] == "i") == preempted


def test_a_track_a_slot_with_what_each_did() -> None:
    run = recorded("static")
    events = checked(trace_json(run))
    tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == SLOTS}
    assert tracks == {"slot 0", "slot 1", "slot 2"}
    spans = [e for e in events if e["ph"] == "X" and e["pid"] == SLOTS]
    assert [e["name"] for e in spans if e["tid"] == 1] == [
        "A prefill", "A decode", "A dead", "D prefill", "D decode", "D dead"
    ]  # fmt: skip
    a = run.stories[0]
    dead = next(e for e in spans if e["name"] == "A dead")
    assert dead["args"]["steps"] == a.dead_steps and dead["args"]["prompt"] == "The capital of France is"
    assert dead["ts"] >= a.token_times[-1] * 1e6
    assert dead["ts"] + dead["dur"] == pytest.approx((a.release_s or 0) * 1e6)


def test_waits_are_the_queue_times() -> None:
    run = recorded("continuous")
    events = checked(trace_json(run))
    begins = {e["args"]["request_id"]: e["ts"] for e in events if e["ph"] == "b" and e["pid"] == QUEUE}
    ends = {e["id"]: e["ts"] for e in events if e["ph"] == "e"}
    ids = {e["args"]["request_id"]: e["id"] for e in events if e["ph"] == "b"}
    for story in run.stories:
        wait = ends[ids[story.request_id]] - begins[story.request_id]
        assert wait == pytest.approx((story.queue_s or 0) * 1e6)


def test_counters_are_the_steps_own() -> None:
    run = recorded("continuous-padded")
    events = checked(trace_json(run))

    def values(name: str) -> list[dict[str, float]]:
        return [e["args"] for e in events if e["ph"] == "C" and e["name"] == name and e["pid"] == ENGINE]

    assert [v["padding"] for v in values("token positions")] == [s.tokens.padding for s in run.steps]
    assert [v["tokens"] for v in values("KV tokens")] == [s.kv_tokens for s in run.steps]
    rates = [v["tokens"] for v in values("output tokens/s")]
    for rate, step in zip(rates, run.steps, strict=False):
        made = sum(one.sampled is not None for one in step.segments if one.kind != "dead")
        assert rate == pytest.approx(made / (step.end_s - step.start_s), abs=1e-2)
    assert rates[-1] == 0


def test_texts_are_texts() -> None:
    data = trace_json(hostile_run())
    checked(data)
    assert not any(character in data.decode() for character in "\x1b\x07\x9b\u202e\u2066\x00")
    assert HOSTILE[0] in data.decode()
