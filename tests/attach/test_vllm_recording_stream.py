"""The way out of the server: a socket or a file that may stall, fill up or be left, and never holds it up."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cbtui_vllm import encoding, readers
from cbtui_vllm import stream as streams
from cbtui_vllm.places import default_socket, place_of, private_folder
from cbtui_vllm.sinks import FileSink
from cbtui_vllm.stream import Stream

HEADER = {"k": "header", "cbtui_vllm": 1}
#: Far more than one machine needs; a thread that never answers fails the test.
PATIENCE_S = 20.0


def socket_stream(folder: Path) -> Stream:
    return Stream(place_of(f"unix:{folder / 'run' / 's.sock'}"), HEADER)


def connect(folder: Path) -> socket.socket:
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    reader.settimeout(PATIENCE_S)
    reader.connect(str(folder / "run" / "s.sock"))
    return reader


def until(done: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    """Code in a process of its own, whose limits may be set."""
    environment = os.environ | {"PYTHONPATH": str(Path(streams.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return run


class Lines:
    """Reads a socket line by line."""

    def __init__(self, reader: socket.socket) -> None:
        self._file = reader.makefile("rb")

    def next(self) -> dict[str, Any]:
        return json.loads(self._file.readline())


def key(number: int) -> dict[str, Any]:
    return {"k": "key", "n": number}


def whole(line: dict[str, Any]) -> list[dict[str, Any]]:
    return [line]


def test_a_reader_gets_the_header_then_a_keyframe_and_every_line_after_it(folder: Path) -> None:
    stream = socket_stream(folder)
    with connect(folder) as reader:
        lines = Lines(reader)
        assert lines.next() == HEADER
        until(lambda: stream.wants_key)
        stream.put({"k": "o", "n": 3})  # nobody could make sense of it yet
        stream.put_key(key(4), whole)
        assert not stream.wants_key
        stream.put({"k": "s", "n": 4})
        assert [lines.next()["k"] for _ in range(2)] == ["key", "s"]
        # A keyframe for somebody else is none for a reader in step.
        stream.put_key(key(5), whole)
        stream.put({"k": "s", "n": 5})
        assert lines.next() == {"k": "s", "n": 5}
    stream.close()
    assert not (folder / "run" / "s.sock").exists()


def test_a_reader_that_stalls_loses_lines_that_are_counted_and_begins_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "READER_LIMIT", 20_000)
    stream = socket_stream(folder)
    other = connect(folder)
    with connect(folder) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines = Lines(stalled)
        assert lines.next() == HEADER  # both are let in: the keyframe is for both
        until(lambda: stream.wants_key)
        stream.put_key(key(1), whole)
        # More than the kernel's buffer and the reader's own take together.
        filler = "x" * 10_000
        others = Lines(other)
        assert [others.next()["k"] for _ in range(2)] == ["header", "key"]
        for number in range(1, 101):
            stream.put({"k": "s", "n": number, "filler": filler})
            assert others.next()["n"] == number  # who reads misses nothing
        seen = [lines.next() for _ in range(2)]
        assert [one["k"] for one in seen] == ["key", "s"]
        numbers = [seen[1]["n"]]
        while numbers[-1] < 101:  # drain it; a keyframe is given as soon as one is wanted
            if stream.wants_key:
                stream.put_key(key(200), whole)
                break
            stream.put({"k": "cost"})
            others.next()
            stalled_line = lines.next()
            if stalled_line["k"] == "s":
                numbers.append(stalled_line["n"])
        line = lines.next()
        while line["k"] == "s":
            numbers.append(line["n"])
            line = lines.next()
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) < 100
        assert line["k"] == "lost" and line["n"] >= 100 - len(numbers)
        assert lines.next() == key(200)
    other.close()
    stream.close()


def test_a_reader_that_leaves_is_forgotten(folder: Path) -> None:
    stream = socket_stream(folder)
    for _ in range(50):
        connect(folder).close()  # some before the header is sent, some after
        stream.put_key(key(1), whole)
        stream.put({"k": "s", "n": 1})
    with connect(folder) as reader:
        assert Lines(reader).next() == HEADER
    stream.close()


def num_files() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("at_once", [1, 50])
def test_readers_of_an_idle_server_leave_no_open_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(readers, "_LOOK_EVERY_S", 0.01)
    stream = socket_stream(folder)
    before = num_files()
    for _ in range(200 // at_once):
        held = [connect(folder) for _ in range(at_once)]
        for reader in held:
            assert reader.recv(10)
        for reader in held:
            reader.close()
    until(lambda: num_files() <= before and not stream.is_heard)
    stream.close()


def test_one_reader_too_many_is_told_so_and_the_others_miss_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MOST_READERS", 2)
    stream = socket_stream(folder)
    held = [connect(folder) for _ in range(2)]
    until(lambda: stream.is_heard)
    refused = connect(folder)
    assert [json.loads(line)["k"] for line in refused.makefile("rb")] == ["header", "over"]
    stream.put_key(key(1), whole)
    for reader in held:
        lines = Lines(reader)
        assert [lines.next()["k"] for _ in range(2)] == ["header", "key"]
    held.pop(0).close()
    with connect(folder) as fresh:  # the place of one that has left is free
        lines = Lines(fresh)
        assert lines.next() == HEADER
        until(lambda: stream.wants_key)
        stream.put_key(key(2), whole)
        assert lines.next() == key(2)
    held.pop().close()
    refused.close()
    stream.close()


def test_a_process_without_files_lets_readers_in_again_when_it_has_some(folder: Path) -> None:
    code = f"""
import os, resource, socket
from cbtui_vllm.places import place_of
from cbtui_vllm.stream import Stream
path = {str(folder / "run" / "s.sock")!r}
stream = Stream(place_of("unix:" + path), {HEADER!r})
outside = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(8)]
most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (outside[-1].fileno() + 3, hard))
for one in outside:
    one.settimeout({PATIENCE_S})
    one.connect(path)
assert outside[0].recv(10) and outside[1].recv(10)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
assert all(one.recv(10) for one in outside[2:])
stream.close()
print("all were let in", os.path.exists(path))
"""
    assert run_alone(code).stdout == "all were let in False\n"


def test_where_no_thread_can_be_made_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = num_files()
    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(RuntimeError):
        socket_stream(folder)
    with pytest.raises(RuntimeError):
        Stream(place_of(str(folder / "steps")), HEADER)
    assert not (folder / "run" / "s.sock").exists() and num_files() == before


def test_a_keyframe_larger_than_the_limit_puts_no_reader_out_of_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "READER_LIMIT", 5_000)
    stream = socket_stream(folder)
    ones = [{"k": "one", "r": number, "prompt": [7] * 10_000} for number in range(60)]
    with connect(folder) as reader:
        lines = Lines(reader)
        assert lines.next() == HEADER
        until(lambda: stream.wants_key)
        stream.put_key(key(1), lambda line: [*ones, line])
        for number in range(10):
            stream.put({"k": "s", "n": number})
        until(lambda: stream._queue.empty() and not stream.wants_key)
        assert [lines.next() for _ in range(61)] == [*ones, key(1)]
        assert [lines.next()["n"] for _ in range(10)] == list(range(10))
    stream.close()


def test_one_keyframe_is_enough_for_who_has_come(folder: Path) -> None:
    """Its coming and the keyframe may reach the thread in one go."""
    stream = socket_stream(folder)
    release = threading.Event()
    stream.put({"k": "first"}, lambda line: release.wait(PATIENCE_S) and line)
    until(lambda: stream._queue.empty())
    with connect(folder) as reader:
        until(lambda: stream.wants_key and not stream._queue.empty())
        stream.put_key(key(1), whole)
        release.set()
        lines = Lines(reader)
        assert [lines.next()["k"] for _ in range(2)] == ["header", "key"]
        until(lambda: stream.takes_key)
        stream.put({"k": "s", "n": 1})
        assert lines.next()["k"] == "s" and not stream.wants_key
    stream.close()


def test_who_comes_amid_a_keyframe_waits_for_the_next(folder: Path) -> None:
    stream = socket_stream(folder)
    first = connect(folder)
    amid: list[socket.socket] = []

    def slow(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"k": "one", "r": 0}
        amid.append(connect(folder))
        assert amid[0].recv(1)  # it has been let in
        assert not stream.takes_key  # one at a time
        yield {"k": "one", "r": 1}
        yield line

    until(lambda: stream.wants_key)
    stream.put_key(key(1), slow)
    lines = Lines(first)
    assert [lines.next()["k"] for _ in range(4)] == ["header", "one", "one", "key"]
    until(lambda: stream.wants_key and stream.takes_key)
    stream.put_key(key(2), lambda line: [{"k": "one", "r": 5}, line])
    late = Lines(amid[0])
    assert late._file.readline()
    assert [late.next() for _ in range(2)] == [{"k": "one", "r": 5}, key(2)]
    stream.put({"k": "s", "n": 2})
    assert lines.next() == late.next() == {"k": "s", "n": 2}
    first.close()
    amid[0].close()
    stream.close()


@pytest.mark.parametrize(
    "line",
    [
        {"k": "s"},
        {"k": "a", "prompt": list(range(10)), "id": "é"},
        {"prompt": [1, 2, 3], "out": list(range(9))},
        {"a": 1, "rows": tuple((number, 1, 2) for number in range(8)), "b": None},
        {"prompt": list(range(4))},
    ],
)
def test_long_lists_are_encoded_in_pieces_to_the_same(
    line: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    monkeypatch.setattr(encoding, "PIECE", 3)
    monkeypatch.setattr(encoding, "let_others_run", lambda: turns.append(1))
    data = encoding.encoded(line)
    assert data.endswith(b"\n") and data.count(b"\n") == 1
    assert json.loads(data) == json.loads(json.dumps(line))
    assert bool(turns) == any(isinstance(one, list | tuple) and len(one) > 3 for one in line.values())


def test_the_queue_is_bounded_in_bytes_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "QUEUE_BYTES", 1000)
    stream = Stream(place_of(str(folder / "steps.jsonl")), HEADER)
    release = [False]
    stream.put({"k": "first"}, lambda line: until(lambda: release[0]) or line)
    until(lambda: stream._queue.empty())
    for number in range(5):
        stream.put({"k": "a", "n": number}, size=400)
    assert stream.num_lost == 2 and stream.wants_key and not stream.takes_key
    release[0] = True
    until(lambda: stream.takes_key)
    stream.put_key(key(9), whole)
    stream.put({"k": "s", "n": 9}, size=400)
    stream.close(PATIENCE_S)
    kinds = [json.loads(line)["k"] for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert kinds == ["header", "first", "a", "a", "a", "lost", "key", "s"]


def test_the_queue_is_bounded_and_what_does_not_fit_is_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "QUEUE_LIMIT", 10)
    path = folder / "steps.jsonl"
    stream = Stream(place_of(str(path)), HEADER)
    release = [False]

    def stuck(line: dict[str, Any]) -> dict[str, Any]:
        until(lambda: release[0])  # as a disk that hangs
        return line

    stream.put({"k": "first"}, stuck)
    until(lambda: stream._queue.empty())
    for number in range(25):
        stream.put({"k": "s", "n": number})
    assert stream.wants_key and stream.num_lost == 15
    stream.put_key(key(1), whole)
    assert stream.wants_key  # the queue is still full
    release[0] = True
    until(lambda: stream._queue.empty())
    stream.put({"k": "s", "n": 25})  # half a story helps nobody
    stream.put_key(key(26), whole)
    stream.put({"k": "s", "n": 26})
    stream.close(PATIENCE_S)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["k"] for line in lines] == ["header", "first", *["s"] * 10, "lost", "key", "s"]
    assert lines[-3] == {"k": "lost", "n": 16}


def test_a_full_disk_ends_the_recording_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: FileSink, kind: str, line: bytes) -> None:
        raise OSError(28, "No space left on device")

    path = folder / "steps.jsonl"
    stream = Stream(place_of(str(path)), HEADER)
    monkeypatch.setattr(FileSink, "write", full)
    stream.put({"k": "s", "n": 1})
    until(lambda: stream.is_over)
    for number in range(10_000):
        stream.put({"k": "s", "n": number})
    stream.close()
    assert json.loads(path.read_text()) == HEADER
    assert [one.getMessage() for one in caplog.records] == [
        "cbtui: the recording stopped: OSError: [Errno 28] No space left on device"
    ]


def test_a_file_that_may_not_grow(folder: Path) -> None:
    code = f"""
import resource, signal, time
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from cbtui_vllm.places import place_of
from cbtui_vllm.stream import Stream
stream = Stream(place_of({str(folder / "steps.jsonl")!r}), {HEADER!r})
for number in range(100):
    stream.put({{"k": "s", "n": number}})
while not stream.is_over:
    time.sleep(0.002)
print("went on")
"""
    run = run_alone(code)
    assert run.stdout == "went on\n" and "the recording stopped" in run.stderr
    assert (folder / "steps.jsonl").stat().st_size == 1000


def test_a_pipe_nobody_reads_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(OSError):
        Stream(place_of(str(folder / "pipe")), HEADER)
    with pytest.raises(OSError, match="no regular file"):
        Stream(place_of("/dev/null"), HEADER)


def test_what_is_made_belongs_to_its_owner_alone(folder: Path) -> None:
    stream = socket_stream(folder)
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "run" / "s.sock").stat().st_mode) == 0o600
    stream.close()
    (folder / "steps.jsonl").write_text("")
    (folder / "steps.jsonl").chmod(0o644)
    stream = Stream(place_of(str(folder / "steps.jsonl")), HEADER)
    assert stat.S_IMODE((folder / "steps.jsonl").stat().st_mode) == 0o600
    stream.close()


def test_a_folder_others_can_enter_is_no_place_for_a_socket(folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="must belong to this user alone"):
        private_folder(folder)


def test_a_dead_servers_socket_is_replaced_and_a_live_ones_is_not(folder: Path) -> None:
    (folder / "run").mkdir(0o700)
    path = str(folder / "run" / "s.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(path)
    stream = socket_stream(folder)
    with pytest.raises(OSError, match="another server listens"):
        socket_stream(folder)
    stream.close()
    # One that lets nobody in any more is alive, too, and is not waited for.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as full:
        full.bind(path)
        full.listen(0)
        knocking = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(4)]
        for one in knocking:
            one.setblocking(False)
        assert any(one.connect_ex(path) for one in knocking)  # its queue is full
        with pytest.raises(OSError, match="another server listens"):
            socket_stream(folder)
        for one in knocking:
            one.close()


@pytest.mark.parametrize(
    ("setting", "rank", "place"),
    [
        ("unix:/run/a/s.sock", 0, "unix:/run/a/s.sock"),
        ("unix:/run/a/s.sock", 2, "unix:/run/a/s-dp2.sock"),
        ("/tmp/steps.jsonl", 0, "/tmp/steps.jsonl"),
        ("/tmp/steps.jsonl", 1, "/tmp/steps-dp1.jsonl"),
    ],
)
def test_places(setting: str, rank: int, place: str) -> None:
    assert str(place_of(setting, rank)) == place


def test_without_a_setting_it_is_a_socket_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert str(place_of(None)) == f"unix:/run/user/7/cbtui/cbtui-vllm-{os.getpid()}.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_socket(5).parent.name == f"cbtui-{os.getuid()}"
    with pytest.raises(ValueError, match="must be unix:PATH"):
        place_of("unix:")
