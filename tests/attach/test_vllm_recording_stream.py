"""The way out of the server: a socket or a file that may stall, fill up or be left, and never holds it up."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cbtui_vllm import stream as streams
from cbtui_vllm.places import default_socket, place_of, private_folder
from cbtui_vllm.stream import FileSink, Stream

HEADER = {"k": "header", "cbtui_vllm": 1}
#: Far more than one machine needs; a thread that never answers fails the test.
PATIENCE_S = 20.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # a socket's path has to be short
        yield Path(name)


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


class Lines:
    """Reads a socket line by line."""

    def __init__(self, reader: socket.socket) -> None:
        self._file = reader.makefile("rb")

    def next(self) -> dict[str, Any]:
        return json.loads(self._file.readline())


def key(number: int) -> dict[str, Any]:
    return {"k": "key", "n": number}


def whole(line: dict[str, Any]) -> dict[str, Any]:
    return line


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
    monkeypatch.setattr(streams, "READER_LIMIT", 20_000)
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
    environment = os.environ | {"PYTHONPATH": str(Path(streams.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
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
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(folder / "run" / "s.sock"))
    stream = socket_stream(folder)
    with pytest.raises(OSError, match="another server listens"):
        socket_stream(folder)
    stream.close()


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
