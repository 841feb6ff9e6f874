from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario import Life, Scenario, scenarios

from engine.stream.records import SCHEMA_VERSION, TraceHeader
from engine.stream.trace import TraceError, TraceWriter, read_header, read_records


def written(records: list) -> bytes:
    file = io.BytesIO()
    writer = TraceWriter(file, TraceHeader(SCHEMA_VERSION, "fake"))
    for record in records:
        writer.write(record)
    return file.getvalue()


@given(scenarios())
def test_what_was_written_is_read(scenario: Scenario) -> None:
    life = Life(scenario)
    life.play()
    file = io.BytesIO(written(life.records))
    assert read_header(file) == TraceHeader(SCHEMA_VERSION, "fake")
    assert list(read_records(file)) == life.records


@pytest.fixture(scope="module")
def trace() -> bytes:
    from scenario import Ask

    from engine.config import EngineConfig
    from engine.request import SamplingParams

    life = Life(Scenario(EngineConfig(), [Ask((1, 2, 3), SamplingParams(max_tokens=5))], []))
    life.play()
    return written(life.records)


@given(data=st.data())
def test_a_cut_trace_keeps_whole_lines_and_names_the_broken_one(trace: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(trace.index(b"\n") + 1, len(trace) - 1))
    file = io.BytesIO(trace[:cut])
    read_header(file)
    kept, lines = [], trace[:cut].count(b"\n")
    if trace[:cut].endswith(b"\n"):
        assert len(list(read_records(file))) == lines - 1
        return
    with pytest.raises(TraceError, match=f"line {lines + 1}: "):
        kept.extend(read_records(file))
    assert len(kept) == lines - 1


def test_a_newer_schema_is_refused_by_number() -> None:
    file = io.BytesIO(written([]).replace(b'"schema_version":%d' % SCHEMA_VERSION, b'"schema_version":99'))
    with pytest.raises(TraceError, match=f"schema 99, this program reads up to {SCHEMA_VERSION}"):
        read_header(file)


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b'{"type":"step"}\n', b"\xff\xfe\n", b"[1]\n", b'{"type":"header"}\n']
)
def test_rubbish_is_named_by_its_line(trace: bytes, line: bytes) -> None:
    file = io.BytesIO(trace + line)
    read_header(file)
    with pytest.raises(TraceError, match=f"line {trace.count(bytes([10])) + 1}: "):
        list(read_records(file))
    with pytest.raises(TraceError, match="line 1: "):
        read_header(io.BytesIO(line))
