"""Sliding windows: the rule, and that every reader of the stream can know of them."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.scheduling.modes import MODES
from engine.step.geometry import ArenaShape, lay_out
from engine.step.mask import LayerKind, layer_kinds, query_runs
from engine.step.plan import Layout, Plan, PlanRow
from engine.stream.records import SCHEMA_VERSION, StepRecord
from engine.stream.trace import TraceWriter, read_header
from engine.stream.trace_files import header_of, info_of, read_trace

DATA = Path(__file__).parents[1] / "data"


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    layout: Layout = draw(st.sampled_from(("ragged", "padded")))
    rows = []
    for slot in range(draw(st.integers(1, 5))):
        start, count = draw(st.integers(0, 12)), draw(st.integers(1, 6))
        kind = draw(st.sampled_from(("prefill", "dead")))
        tokens = [1] * (1 if kind == "dead" else count)
        kv_len = 1 if kind == "dead" and draw(st.booleans()) else start + len(tokens)
        rows.append(PlanRow(f"r{slot}", slot, kind, tokens, start, kv_len, list(range(9))))  # type: ignore[arg-type]
    return Plan(1, 0, 1, layout, rows)


@given(plans(), st.none() | st.integers(1, 20))
def test_allowed_is_causal_and_same_sequence_and_within_the_window(plan: Plan, window: int | None) -> None:
    geometry = lay_out(plan, ArenaShape(64, 2, 8))
    #: Whose each query and key is, and its place counted from the sequence's newest key: 0, -1, -2 …
    queries = {
        (span.row, span.q_start + i): (number, i - span.q_len + 1)
        for number, span in enumerate(geometry.spans)
        for i in range(span.q_len)
    }
    keys = {
        (span.row, span.kv_start + i): (number, i - span.kv_len + 1)
        for number, span in enumerate(geometry.spans)
        for i in range(span.kv_len)
    }
    runs = {(run.row, run.column): run for run in query_runs(geometry.spans, geometry.shape, window)}
    assert len(runs) == geometry.shape[0] * geometry.shape[1]
    for place, run in runs.items():
        if place not in queries:
            assert (run.start, run.stop, run.segment) == (0, 1, None)
            continue
        owner, query = queries[place]
        for key in range(geometry.num_keys):
            whose, at = keys.get((place[0], key), (None, 0))
            allowed = whose == owner and at <= query and (window is None or at > query - window)
            assert (run.start <= key < run.stop) == allowed


@pytest.mark.parametrize("window", [1, 3, 8, None])
def test_outputs_are_the_same_in_every_mode_with_a_window(window: int | None) -> None:
    def outputs(mode: str, slots: int) -> list[list[int]]:
        runner = FakeRunner(window=window)
        config = EngineConfig(mode=mode, max_num_seqs=slots, num_blocks=24, block_size=2)
        engine = Engine(config, runner, runner.info)
        for number in range(5):
            prompt = list(range(number, 2 * number + 3))
            engine.add_request(prompt, SamplingParams(max_tokens=3 + 2 * number))
        requests = dict(engine.requests)
        while engine.has_work:
            engine.step()
        return [request.output_token_ids for request in requests.values()]

    alone = outputs("continuous", 1)
    assert all(outputs(mode, 3) == alone for mode in MODES)
    if window == 1:  # all that is seen is the token before
        assert len({token for output in alone for token in output}) > 5


def test_kinds_of_layers_in_the_order_they_come() -> None:
    assert layer_kinds(()) == (LayerKind(None, ()),)
    assert layer_kinds((None, None)) == (LayerKind(None, (0, 1)),)
    assert layer_kinds((4, 4, None, 4)) == (LayerKind(4, (0, 1, 3)), LayerKind(None, (2,)))


def test_a_trace_carries_the_windows() -> None:
    runner = FakeRunner(window=32)
    info = msgspec.structs.replace(
        runner.info, facts=msgspec.structs.replace(runner.info.facts, layer_windows=(32, None))
    )
    file = io.BytesIO()
    TraceWriter(file, header_of(info, EngineConfig()))
    file.seek(0)
    header = read_header(file)
    assert (header.schema_version, header.layer_windows) == (SCHEMA_VERSION, (32, None))
    assert info_of(header).facts.layer_windows == (32, None)


def test_a_trace_of_the_first_schema_is_read_as_before() -> None:
    trace = read_trace(DATA / "trace-static.jsonl")
    assert (trace.header.schema_version, trace.error) == (1, "")
    assert info_of(trace.header).facts.layer_windows == ()
    assert sum(isinstance(record, StepRecord) for record in trace.records) > 20
