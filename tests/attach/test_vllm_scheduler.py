"""The recorder inside the server: it notes what happens, and nothing it does can reach the server."""

from __future__ import annotations

import ast
import gc
import json
import logging
import socket
import sys
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_vllm
import pytest
from cbtui_vllm import facts, sinks
from cbtui_vllm import lines as line_parts
from cbtui_vllm import recorder as recorders
from cbtui_vllm import stream as streams
from cbtui_vllm.recorder import Recorder
from fake_vllm import Request, config, take_in, turn

from engine.attach import vllm_lines
from engine.attach.source import SourceOver
from engine.attach.stream import StreamSource
from engine.attach.vllm_fold import VllmFold
from engine.attach.vllm_requests import table_from
from engine.stream.records import NO_BLOCK, STOP_OR_ABORT, Record, StepRecord

PATIENCE_S = 20.0


def made(module: Any, setting: str, patch: pytest.MonkeyPatch, **limits: Any) -> Any:
    patch.setenv("CBTUI_VLLM_STREAM", setting)
    return module.RecordingScheduler(config(**limits), kv_cache_config=None)


def records_of(path: Path) -> list[Record]:
    fold = VllmFold()
    return [r for line in path.read_bytes().splitlines() for r in fold.take(vllm_lines.decode(line))]


def run_three(scheduler: Any) -> None:
    for number in range(3):
        scheduler.add_request(Request(f"r{number}", [number] * 3, 2 + number))
    while scheduler.requests:
        turn(scheduler)


def test_what_happens_becomes_records(module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "steps.jsonl"
    scheduler = made(module, str(path), monkeypatch)
    run_three(scheduler)
    scheduler.shutdown()
    assert scheduler.was_shut_down
    steps = [record for record in records_of(path) if isinstance(record, StepRecord)]
    assert [record.tokens.total for record in steps] == [6, 2, 4, 1, 1, 1]
    assert [len(record.segments) for record in steps] == [2, 2, 2, 1, 1, 1]
    assert steps[2].segments[1].block_ids == (3,)
    finished = [(one.request_id, one.reason) for record in steps for one in record.events.finished]
    assert finished == [("r0", "length"), ("r1", "length"), ("r2", "length")]
    assert steps[0].free_blocks == 97


def test_a_server_that_schedules_ahead_gets_its_own_scheduler(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(module, str(folder / "a"), monkeypatch, async_scheduling=True)
    assert isinstance(scheduler, fake_vllm.AsyncScheduler)
    assert not isinstance(made(module, str(folder / "b"), monkeypatch), fake_vllm.AsyncScheduler)


def test_a_reader_of_an_idle_server_misses_nothing(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(module, f"unix:{folder / 'run' / 's'}", monkeypatch)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as reader:
        reader.settimeout(PATIENCE_S)
        reader.connect(str(folder / "run" / "s"))
        file = reader.makefile("rb")
        fold = VllmFold()
        fold.take(vllm_lines.decode(file.readline()))
        wait_for(lambda: scheduler._recorder._stream.wants_key)
        run_three(scheduler)
        scheduler.shutdown()
        records = [r for line in file for r in fold.take(vllm_lines.decode(line))]
    assert [r.step for r in records if isinstance(r, StepRecord)] == [1, 2, 3, 4, 5, 6]


def test_a_reader_that_comes_late_gets_prompts_and_outputs_so_far(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_parts, "WAITING_SHOWN", 1)
    scheduler = made(module, f"unix:{folder / 'run' / 's'}", monkeypatch, max_num_seqs=1)
    for number in range(4):
        scheduler.add_request(Request(f"r{number}", [number] * 3, 3))
    turn(scheduler)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as reader:
        reader.settimeout(PATIENCE_S)
        reader.connect(str(folder / "run" / "s"))
        file = reader.makefile("rb")
        lines = [json.loads(file.readline())]
        wait_for(lambda: scheduler._recorder._stream.wants_key)
        while scheduler.requests:
            turn(scheduler)
        scheduler.shutdown()
        lines += [json.loads(line) for line in file]
    assert [one["k"] for one in lines[1:6]] == ["one"] * 4 + ["key"] and lines[5]["n"] == 2
    assert [(one["id"], one.get("prompt"), one.get("out")) for one in lines[1:5]] == [
        ("r0", [0, 0, 0], [3]),
        ("r1", [1, 1, 1], []),
        ("r2", None, None),
        ("r3", None, None),
    ]
    assert [(one["r"], one["prompt"]) for one in lines if one["k"] == "p"] == [(2, [2] * 3), (3, [3] * 3)]
    fold = VllmFold()
    records = [r for one in lines for r in fold.take(vllm_lines.decode(json.dumps(one).encode()))]
    last = [r for r in records if isinstance(r, StepRecord)][-1]
    assert last.segments[0].request_id == "r3"


def test_while_nobody_reads_steps_are_counted_and_nothing_else(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(module, f"unix:{folder / 'run' / 's'}", monkeypatch)
    recorder = scheduler._recorder
    stream, kinds = recorder._stream, []
    put = stream.put
    monkeypatch.setattr(stream, "put", lambda line, *more: (kinds.append(line["k"]), put(line, *more)))
    run_three(scheduler)
    scheduler.add_request(Request("long", [1, 2, 3], 100_000))
    assert not kinds and not recorder._numbers
    for _ in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as reader:
            reader.settimeout(PATIENCE_S)
            reader.connect(str(folder / "run" / "s"))
            wait_for(lambda: stream.wants_key)
            before = recorder._steps
            turn(scheduler)
            turn(scheduler)
            with reader.makefile("rb") as file:
                lines = [file.readline() for _ in range(7)]
        assert [json.loads(line)["k"] for line in lines] == ["header", "one", "key", "s", "o", "s", "o"]
        fold = VllmFold()
        records = [record for line in lines for record in fold.take(vllm_lines.decode(line))]
        steps = [record for record in records if isinstance(record, StepRecord)]
        assert [one.step for one in steps] == [before + 1, before + 2]
        assert [one.segments[0].request_id for one in steps] == ["long", "long"]
        wait_for(lambda: turn(scheduler) and not stream.is_heard)
        kinds.clear()
        turn(scheduler)
        assert not kinds and not recorder._numbers
    scheduler.shutdown()


def test_a_step_under_way_when_a_reader_comes_keeps_its_number(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(module, f"unix:{folder / 'run' / 's'}", monkeypatch)
    scheduler.add_request(Request("r0", [1, 2, 3], 9))
    under_way = scheduler.schedule()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as reader:
        reader.settimeout(PATIENCE_S)
        reader.connect(str(folder / "run" / "s"))
        wait_for(lambda: scheduler._recorder._stream.wants_key)
        following = scheduler.schedule()
        for one in (under_way, following):
            take_in(scheduler, one)
        scheduler.shutdown()
        lines = [json.loads(line) for line in reader.makefile("rb")]
    assert [(one["k"], one["n"], one.get("out")) for one in lines[2:-1]] == [
        ("key", 2, None),
        ("s", 2, None),
        ("o", 1, [[0, [3]]]),
        ("o", 2, None),
    ]
    assert lines[-2]["tok"] == [4]


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ([("a", [5], None), ("b", [6], None)], [5, 6]),
        ([("b", [6], None), ("a", [5], None)], None),
        ([("a", [5], None)], None),
        ([("a", [5], None), ("b", [6, 7], None)], None),
        ([("a", [5], None), ("b", [], None)], None),
        ([("a", [5], None), ("b", [6], 0)], None),
        ([("a", [5], None), ("c", [6], None)], None),
    ],
)
def test_what_counts_as_one_token_each(given: list[tuple[str, list[int], Any]], tokens: Any) -> None:
    outputs = [
        SimpleNamespace(request_id=name, new_token_ids=ids, finish_reason=end) for name, ids, end in given
    ]
    assert line_parts.one_token_each(outputs, {"a": 0, "b": 1}, [0, 1]) == tokens


def test_requests_ended_from_outside(module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = made(module, str(folder / "steps"), monkeypatch)
    for number in range(3):
        scheduler.add_request(Request(f"r{number}", [number] * 3, 9))
    turn(scheduler)
    scheduler.finish_requests((name for name in ["r0"]), None)  # vLLM takes any iterable, read once
    scheduler.finish_requests(None, None)
    assert not scheduler.requests
    scheduler.shutdown()
    ends = [one for record in records_of(folder / "steps") for one in record.events.finished]
    assert [(one.request_id, one.reason, one.slot) for one in ends] == [
        ("r0", STOP_OR_ABORT, 0),
        ("r1", STOP_OR_ABORT, 1),
        ("r2", STOP_OR_ABORT, None),
    ]


@pytest.mark.parametrize(
    "hook", ["_arrival", "_add_tables", "_first_waiting", "_num_waiting", "_key", "_put"]
)
def test_no_fault_of_the_recorder_reaches_the_server(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("not there")

    plain = fake_vllm.Scheduler(config())
    run_three(plain)
    scheduler = made(module, str(folder / "steps"), monkeypatch)
    scheduler._recorder._stream.wants_key = True
    monkeypatch.setattr(Recorder, hook, broken)
    run_three(scheduler)
    scheduler.shutdown()
    assert not scheduler.requests and scheduler.was_shut_down
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 1 and "KeyError" in warnings[0]
    assert scheduler._recorder.num_faults


def test_after_a_fault_the_stream_goes_on_with_a_keyframe(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(module, str(folder / "steps"), monkeypatch)
    whole = Recorder._add_tables
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "_add_tables", lambda *args: 1 / 0)
        scheduler.add_request(Request("r0", [1, 2, 3], 6))
        turn(scheduler)
    assert Recorder._add_tables is whole
    while scheduler.requests:
        turn(scheduler)
    scheduler.shutdown()
    records = records_of(folder / "steps")
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert [record.step for record in steps] == [2, 3, 4, 5, 6]
    assert "ZeroDivisionError" in steps[0].events.errors[0]
    ends = [one for record in records for one in record.events.finished]
    assert [(one.reason, one.num_output_tokens) for one in ends] == [("length", 6)]


def test_too_many_faults_end_the_recording(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = made(module, str(folder / "steps"), monkeypatch)
    monkeypatch.setattr(Recorder, "_add_tables", lambda *args: 1 / 0)
    scheduler.add_request(Request("r0", [1], 100))
    while scheduler.requests:
        turn(scheduler)
    assert scheduler._recorder.is_off and scheduler._recorder.num_faults == recorders.MOST_FAULTS
    assert len(caplog.records) == 2
    scheduler.shutdown()
    wait_for(lambda: scheduler._recorder._stream.is_over)
    last = records_of(folder / "steps")[-1]
    assert "20 faults" in last.events.errors[-1] and "tried with vLLM 0.32.0" in last.events.errors[-1]


def test_stray_faults_end_nothing(module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "FAULT_STEPS", 30)
    scheduler = made(module, str(folder / "steps"), monkeypatch)
    scheduler.add_request(Request("r0", [1], 1000))
    whole = Recorder._add_tables
    while scheduler.requests:
        is_stray = scheduler._recorder._steps % 5 == 0
        monkeypatch.setattr(Recorder, "_add_tables", (lambda *args: 1 / 0) if is_stray else whole)
        turn(scheduler)
    assert scheduler._recorder.num_faults > 100 and not scheduler._recorder.is_off
    scheduler.shutdown()


def test_a_reader_is_told_why_nothing_more_comes(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(module, f"unix:{folder / 'run' / 's'}", monkeypatch)
    scheduler.add_request(Request("r0", [1], 1000))
    source = StreamSource(folder / "run" / "s")
    source.open()
    wait_for(lambda: scheduler._recorder._stream.wants_key)
    monkeypatch.setattr(Recorder, "_add_tables", lambda *args: 1 / 0)
    while not scheduler._recorder.is_off:
        turn(scheduler)
    wait_for(lambda: scheduler._recorder._stream.is_over)

    def read_on() -> None:
        while True:
            source.read(PATIENCE_S)

    with pytest.raises(SourceOver, match="20 faults of the recorder, at last ZeroDivisionError"):
        read_on()
    source.close()
    scheduler.shutdown()


def test_a_late_reader_of_a_server_that_makes_no_steps_sees_its_queue(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused server is not asked for a step; what arrives and ends tells its readers all the same."""
    scheduler = made(module, f"unix:{folder / 'run' / 's'}", monkeypatch)
    for number in range(3):
        scheduler.add_request(Request(f"r{number}", [number] * 3, 9))
    for happens in (
        lambda: scheduler.add_request(Request("late", [7], 9)),
        lambda: scheduler.finish_requests(["r0"], fake_vllm.Status.FINISHED_ABORTED),
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as reader:
            reader.settimeout(PATIENCE_S)
            reader.connect(str(folder / "run" / "s"))
            wait_for(lambda: scheduler._recorder._stream.wants_key)
            happens()
            alive = list(scheduler.requests)
            with reader.makefile("rb") as file:
                lines = [json.loads(file.readline()) for _ in range(len(alive) + 2)]
        assert [one["id"] for one in lines if one["k"] == "one"] == alive
        assert lines[-1]["k"] == "key" and lines[-1]["wait"] == len(alive)
    scheduler.shutdown()


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_model_whose_scheduler_is_its_own_is_not_recorded(
    module: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_ahead: bool,
) -> None:
    monkeypatch.setenv("CBTUI_VLLM_STREAM", str(folder / "steps"))
    its_config = config(async_scheduling=is_ahead)
    its_config.diffusion_config = object()
    scheduler = module.RecordingScheduler(vllm_config=its_config, kv_cache_config=None)
    chosen = fake_vllm.DiffusionAsyncScheduler if is_ahead else fake_vllm.DiffusionScheduler
    assert type(scheduler) is chosen and not (folder / "steps").exists()
    assert [one.getMessage() for one in caplog.records] == [
        "cbtui: nothing is recorded: the model needs a scheduler of its own, " + chosen.__name__
    ]


@pytest.mark.parametrize(
    ("specs", "number", "is_windowed", "block_size"),
    [
        ([], None, False, 16),
        ([fake_vllm.FullAttentionSpec(32)], 0, False, 64),
        ([fake_vllm.FullAttentionSpec(32, dcp_sharded=False)], 0, False, 32),
        ([fake_vllm.WindowedSpec(8)], 0, True, 8),
        ([fake_vllm.WindowedSpec(8), fake_vllm.FullAttentionSpec(32)], 1, False, 64),
        ([SimpleNamespace(block_size=8, kv_cache_specs={"a": fake_vllm.FullAttentionSpec(8)})], 0, False, 8),
        ([SimpleNamespace(block_size=8, kv_cache_specs={"a": fake_vllm.WindowedSpec(8)})], 0, True, 8),
    ],
)
def test_which_group_of_blocks_is_shown(
    module: Any, specs: list[Any], number: int | None, is_windowed: bool, block_size: int
) -> None:
    its_config = config()
    its_config.parallel_config.decode_context_parallel_size = 2
    scheduler = fake_vllm.Scheduler(its_config)
    scheduler.vllm_config = its_config
    scheduler.kv_cache_config.kv_cache_groups = [SimpleNamespace(kv_cache_spec=one) for one in specs]
    assert facts.shown_group(scheduler) == facts.ShownGroup(number, is_windowed, block_size)


@pytest.mark.parametrize(
    ("blocks", "told"),
    [([], ()), ([3, 4], (3, 4)), ([0, 0, 5, 6], (-2, 5, 6)), ([0, 7, 0, 0, 8, 0], (-1, 7, -2, 8, -1))],
)
def test_the_null_block_is_left_out_and_places_stay(blocks: list[int], told: tuple[int, ...]) -> None:
    assert line_parts.without_null(blocks, 0) == told
    assert table_from(told) == [block or NO_BLOCK for block in blocks]


def test_requests_that_wait_for_an_adapter(module: Any) -> None:
    def request(adapter: int | None) -> Any:
        of = None if adapter is None else SimpleNamespace(lora_int_id=adapter)
        return SimpleNamespace(lora_request=of, status=fake_vllm.Status.WAITING)

    scheduler = SimpleNamespace(
        lora_config=SimpleNamespace(max_loras=2), running=[request(1), request(2), request(None)]
    )
    full = line_parts.full_adapters(scheduler)
    told = [line_parts.status_of(request(one), full) for one in (1, 3, None)]
    assert told == ["WAITING", "WAITING_FOR_LORA", "WAITING"]
    scheduler.running.pop(0)
    assert line_parts.full_adapters(scheduler) is None
    assert line_parts.status_of(request(3), None) == "WAITING"


def test_what_waits_for_the_disk_is_no_request_and_no_keyframe_in_vain(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs holds neither what requests carry nor the server's own thread."""
    monkeypatch.setattr(streams, "QUEUE_LIMIT", 20)
    release = threading.Event()
    write = sinks.FileSink.write

    def stuck(self: Any, kind: str, line: bytes) -> None:
        if kind != "header":
            release.wait(PATIENCE_S)
        write(self, kind, line)

    monkeypatch.setattr(sinks.FileSink, "write", stuck)
    made_keys: list[int] = []
    make = Recorder._key
    monkeypatch.setattr(Recorder, "_key", lambda *args: (made_keys.append(1), make(*args)))
    scheduler = made(module, str(folder / "steps"), monkeypatch)
    for number in range(30):
        scheduler.add_request(Request(f"r{number}", [number] * 3, 4))
    held = [weakref.ref(one) for one in scheduler.requests.values()]
    for _ in range(10):
        turn(scheduler)
    assert scheduler._recorder._stream.wants_key and not made_keys
    scheduler.finish_requests(None, None)
    gc.collect()
    assert not any(one() for one in held)
    release.set()
    wait_for(lambda: scheduler._recorder._stream.takes_key)
    turn(scheduler)
    assert made_keys
    scheduler.shutdown()


def test_where_there_can_be_no_recorder_there_is_no_stream(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorders, "shown_group", lambda scheduler: 1 / 0)
    scheduler = made(module, f"unix:{folder / 'run' / 's'}", monkeypatch)
    assert scheduler._recorder is None and "nothing is recorded" in caplog.text
    assert not (folder / "run" / "s").exists()
    run_three(scheduler)


def test_a_place_that_cannot_be_made_is_said_and_the_server_starts(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder.chmod(0o755)
    scheduler = made(module, f"unix:{folder / 's'}", monkeypatch)
    run_three(scheduler)
    scheduler.shutdown()
    assert "nothing is recorded: PermissionError" in caplog.text


def test_an_exception_of_vllms_own_is_not_touched(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(module, str(folder / "steps"), monkeypatch)

    def broken(*args: Any) -> Any:
        raise RuntimeError("vLLM's own")

    monkeypatch.setattr(fake_vllm.Scheduler, "schedule", broken)
    with pytest.raises(RuntimeError, match="vLLM's own"):
        scheduler.schedule()
    scheduler.shutdown()


def test_it_needs_nothing_but_the_standard_library_and_vllm() -> None:
    allowed = {"vllm", "__future__", *sys.stdlib_module_names}
    paths = list(Path(recorders.__file__).parent.glob("*.py"))
    assert len(paths) >= 7
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{path.name} reaches out of its folder"
                names = [] if node.level else [node.module or ""]
            for name in names:
                assert name.partition(".")[0] in allowed, (path.name, name)


def wait_for(done: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.002)
