"""Whatever a file holds, its reader answers with what it could read and one clear sentence about the rest."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbtui.keymap import KeymapError, check_keymap, remappable
from cbtui.settings import SettingsError, read_settings
from engine.live.commands import PromptRequest
from engine.stream.comparison import compare
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics
from engine.stream.records import StepRecord
from engine.stream.trace import TraceError
from engine.stream.trace_files import Trace, read_trace
from engine.workload import FORMATS, Asked, BadLine, WorkloadError, read_workload

DATA = Path(__file__).parent / "data"
TRACE = [json.loads(line) for line in (DATA / "trace-static.jsonl").read_text().splitlines()]
WORKLOADS = [path.read_bytes() for path in sorted((DATA / "workloads").iterdir())]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


T = TypeVar("T")


def outcome(do: Callable[[], T], refusal: type[Exception]) -> tuple[T | None, str]:
    """What came of it, or the sentence of the one refusal that is allowed."""
    try:
        return do(), ""
    except refusal as error:
        return None, str(error)


# -- request files ------------------------------------------------------------------------------


def reads_or_says(data: bytes) -> None:
    lines, said = outcome(lambda: read_workload(data, Asked(max_tokens=4)), WorkloadError)
    assert lines is not None or said
    for line in lines or []:
        if isinstance(line, BadLine):
            assert line.line >= 1 and line.reason
        else:
            assert isinstance(line, PromptRequest)
            line.sampling(lambda: 0)
            line.prompt.encode()


@given(st.binary(max_size=300))
def test_any_bytes_are_requests_or_bad_lines(data: bytes) -> None:
    for head in (b"", b"{", b"[", FORMATS[3].columns[0].encode()):
        reads_or_says(head + data)


@given(st.sampled_from(WORKLOADS), st.data())
def test_spoilt_request_files(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(0, min(len(data), 3000)))
    length = draw.draw(st.integers(0, 40))
    reads_or_says(data[:place] + draw.draw(st.binary(max_size=12)) + data[place + length :])


@given(st.data())
def test_objects_with_any_values_in_the_known_fields(draw: st.DataObject) -> None:
    names = "prompt output_tokens priority arrival_s custom_id url method body conversations id".split()
    names += "timestamp input_length output_length hash_ids messages".split()
    fields = draw.draw(st.dictionaries(st.sampled_from(names), json_values, max_size=6))
    reads_or_says(json.dumps(fields).encode())
    reads_or_says(json.dumps([fields, fields]).encode())


# -- traces -------------------------------------------------------------------------------------


def spoilt_trace(draw: st.DataObject) -> list[Any]:
    """The lines of a trace with some values changed, lines gone or doubled."""
    lines = json.loads(json.dumps(TRACE[:16]))
    for _ in range(draw.draw(st.integers(1, 4))):
        number = draw.draw(st.integers(0, len(lines) - 1))
        match draw.draw(st.sampled_from(["drop", "double", "value", "value", "value"])):
            case "drop" if len(lines) > 1:
                del lines[number]
            case "double":
                lines.insert(number, json.loads(json.dumps(lines[number])))
            case _:
                spoil_value(lines[number], draw)
    return lines


def spoil_value(holder: Any, draw: st.DataObject) -> None:
    """Change one value somewhere inside; numbers and ids stay such more often than not."""
    while True:
        keys = sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = draw.draw(st.sampled_from(keys))
        value = holder[key]
        if not isinstance(value, dict | list) or not value or draw.draw(st.integers(0, 5)) == 0:
            break
        holder = value
    near = (
        [value + 1, value - 1, -1, 0, 10**12] if type(value) in (int, float) else ["r0", "r99", "", "\x1b[2J"]
    )
    holder[key] = draw.draw(st.sampled_from(near) | json_values)


@settings(max_examples=60)
@given(draw=st.data())
def test_what_is_read_of_a_spoilt_trace_can_be_folded_and_compared(
    draw: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "spoilt.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in spoilt_trace(draw)))
    trace, said = outcome(lambda: read_trace(path), TraceError)
    if trace is None:
        assert said.startswith(f"{path}, line 1: ")
        return
    assert not trace.error or trace.error.startswith("line ")
    can_be_used(trace)


def can_be_used(trace: Trace) -> None:
    from engine.config import EngineConfig
    from engine.runner import Ready
    from engine.stream.trace_files import info_of

    ledger = Ledger()
    metrics = Metrics(ledger)
    for record in trace.records:
        ledger.apply(record)
        metrics.apply(record)
    if any(isinstance(record, StepRecord) for record in trace.records):
        compare(
            {"a": trace.records, "b": trace.records}, Ready(info_of(trace.header), epoch=1), EngineConfig()
        )


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_a_trace_cut_off_anywhere_gives_its_whole_records_and_says_so(tmp_path: Path, ending: str) -> None:
    """What a crash, a full disk or a `kill -9` leaves."""
    path = tmp_path / f"trace.{ending}"
    text = "".join(json.dumps(line) + "\n" for line in TRACE[:4]).encode()
    data = gzip.compress(text) if ending.endswith("gz") else text
    path.write_bytes(data)
    whole = read_trace(path).records
    assert len(whole) == 3
    for size in range(0, len(data), 3 if ending == "jsonl.gz" else 29):
        path.write_bytes(data[:size])
        trace, said = outcome(lambda: read_trace(path), TraceError)
        if trace is None:
            assert "line 1: " in said
            continue
        assert trace.records == whole[: len(trace.records)]
        is_at_line_end = ending == "jsonl" and data[:size].endswith(b"\n")
        assert bool(trace.error) != is_at_line_end


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"step": 0}, "step 0 after step"),
        ({"shape": [-1, 3]}, "out of range"),
        ({"num_keys": 1 << 40}, "out of range"),
        ({"slots": [{**TRACE[3]["slots"][0], "request_id": "r9"}]}, "introduces a request 'r9'"),
        ({"segments": [{**TRACE[3]["segments"][0], "q_len": 0}]}, "outside the step"),
        ({"segments": [{**TRACE[3]["segments"][0], "row": 99}]}, "outside the step"),
        ({"segments": [{**TRACE[3]["segments"][0], "token_ids": []}]}, "0 tokens of"),
    ],
)
def test_a_record_that_cannot_be_names_its_line_and_ends_the_trace(
    tmp_path: Path, line: dict[str, object], words: str
) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [*TRACE[:3], TRACE[3] | line, *TRACE[4:]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = read_trace(path)
    assert len(trace.records) == 2
    assert trace.error.startswith("line 4: ") and words in trace.error


# -- settings and keys --------------------------------------------------------------------------


def settings_or_sentence(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    found, said = outcome(lambda: read_settings(path), SettingsError)
    assert found is not None or (said.startswith(str(path)) and "\n" not in said)
    return said


NAMES = "theme speed slots budget mode max_tokens chat history keys nonsense".split()


@given(draw=st.data())
def test_any_settings_file_is_read_or_refused_with_its_name(
    draw: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "settings.toml"
    value = st.integers().map(str) | st.floats().map(repr) | st.text(max_size=9).map(json.dumps)
    value |= st.sampled_from(["true", "[[1]]", "{a=1}", "nan", "1979-05-27", "'", "\x1b", "0x1F", "1_0"])
    lines = draw.draw(st.lists(st.tuples(st.sampled_from(NAMES), value), max_size=4))
    settings_or_sentence(path, "\n".join(f"{name} = {text}" for name, text in lines).encode())
    settings_or_sentence(path, draw.draw(st.binary(max_size=60)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a = " + b"[" * 20_000, "nested too deeply"),
        (b"slots = " + b"9" * 5000, "line 1: "),
        (b"speed = " + b"9" * 400, "speed must be"),
        (b"speed = 1e-300", "speed must be"),
        (b"history = 99999999999999999999", "history must be"),
        (b"max_tokens = 0", "max_tokens must be"),
        (b"theme = '" + b"x" * 500 + b"'", "theme must be"),
        (b"\xff", "not UTF-8"),
        (b"slots = 3\0", "line 1: "),
        (b"slots = 1\nslots = 2", "line 2: "),
        (b"#" * 2_000_000, "larger than 1 MiB"),
        (b"keys = 3", "keys must be a table"),
        (b"[keys]\n'engine.step' = 3", "must be keys in quotation marks"),
    ],
    ids=range(13),
)
def test_a_bad_settings_file(tmp_path: Path, data: bytes, words: str) -> None:
    said = settings_or_sentence(tmp_path / "settings.toml", data)
    assert words in said and len(said) < 400


def test_settings_with_a_mark_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_bytes(b"\xef\xbb\xbfslots = 5\r\n# a word\r\ntheme = 'light'\r\n")
    found = read_settings(tmp_path / "settings.toml")
    assert (found.slots, found.theme) == (5, "light")


def test_a_folder_for_a_settings_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        read_settings(tmp_path)


@given(st.dictionaries(st.sampled_from(sorted(remappable())) | st.text(max_size=5), st.text(max_size=12)))
def test_any_keymap_is_taken_or_refused_by_name(keymap: dict[str, str]) -> None:
    _, said = outcome(lambda: check_keymap(keymap), KeymapError)
    assert not said or "\n" not in said
