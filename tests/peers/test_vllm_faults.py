"""What may go wrong around the recorder of a real vLLM: its requests are answered all the same.

`make test-peers`. Prints what was lost and counted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from engine.attach.recordings import read_recording
from tests.attach.following import following
from tests.peers.tiny_llama import make_tiny_llama
from tests.peers.told import assert_sound, assert_told, steps_of
from tests.peers.vllm_server import Answer, Asked, VllmServer, vllm_server

pytestmark = [pytest.mark.peers, pytest.mark.model]


@pytest.fixture(scope="module")
def model(default_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("tiny"), default_model_path)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    def say(words: str) -> None:
        with capsys.disabled():
            print(f"\n    {words}", flush=True)

    return say


def requests(number: int, *, name: str = "job", length: int = 20, max_tokens: int = 10) -> list[Asked]:
    random = Random(number)
    return [
        Asked(f"{name}-{n}", tuple(random.randrange(5, 40_000) for _ in range(length)), max_tokens)
        for n in range(number)
    ]


def assert_answered(answers: list[Answer]) -> None:
    assert all(len(answer.outputs[0]) == answer.asked.max_tokens for answer in answers)


def words_of_log(server: VllmServer) -> list[str]:
    return [line.partition("cbtui: ")[2] for line in server.log.read_text().splitlines() if "cbtui: " in line]


def connected(place: Path) -> socket.socket:
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    reader.settimeout(30)
    reader.connect(str(place))
    return reader


# -- places that cannot be written to ------------------------------------------------------------


@contextmanager
def listened_on(folder: Path) -> Iterator[str]:
    """A socket another server listens on."""
    place = folder / "run" / "s"
    place.parent.mkdir(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(place))
        other.listen()
        yield f"unix:{place}"


@contextmanager
def too_long(folder: Path) -> Iterator[str]:
    yield f"unix:{folder / ('long' * 40) / 's'}"


@contextmanager
def forbidden(folder: Path) -> Iterator[str]:
    """A folder that others can enter, too."""
    place = folder / "run" / "s"
    place.parent.mkdir(0o755)
    yield f"unix:{place}"


PLACES = {
    "two servers on one socket": (listened_on, "nothing is recorded: OSError: another server listens on"),
    "a path too long": (too_long, "nothing is recorded: OSError: AF_UNIX path too long"),
    "a folder that is not the user's alone": (forbidden, "nothing is recorded: PermissionError: "),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_place_that_cannot_be(case: str, model: Path, tmp_path: Path, said: Callable[[str], None]) -> None:
    make, words = PLACES[case]
    with make(tmp_path) as place, vllm_server(model, tmp_path, place) as server:
        answers = server.answers(requests(8))
        (line,) = words_of_log(server)
    assert_answered(answers)
    assert line.startswith(words)
    said(f"{case}: 8 of 8 requests answered; the log says: {line.replace(str(tmp_path), '…')}")


# -- a disk that fills up ------------------------------------------------------------------------


def test_a_full_disk(model: Path, tmp_path: Path, said: Callable[[str], None]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("a small disk can be made by root alone")
    try:
        stream = disk / "steps.jsonl"
        with vllm_server(model, tmp_path, str(stream)) as server:
            answers = server.answers(requests(40, max_tokens=40))
            more = server.answers(requests(4))
            lines = words_of_log(server)
        assert_answered([*answers, *more])
        assert [line for line in lines if line.startswith("the recording stopped: OSError: [Errno 28]")]
        trace = read_recording(stream)
        assert "cut off" in trace.error
        steps = steps_of(trace.records)
        assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    said(f"a full disk: 44 of 44 requests answered; the file holds {len(steps)} whole steps: {lines[-1]}")


# -- readers that stall or die, a server that is killed ------------------------------------------


def test_readers_that_stall_or_die_cost_nobody_else_anything(
    model: Path, tmp_path: Path, said: Callable[[str], None]
) -> None:
    place = tmp_path / "run" / "s"
    wide = ("--max-model-len", "2048", "--max-num-seqs", "16", "--max-num-batched-tokens", "8192")
    with vllm_server(model, tmp_path, f"unix:{place}", *wide) as server:
        stalled = connected(place)
        killed = subprocess.Popen(
            [sys.executable, "-c", _READER, str(place)], stdout=subprocess.PIPE, text=True
        )
        assert killed.stdout is not None and killed.stdout.readline() == "reading\n"
        with following(f"unix:{place}") as good:
            first = server.answers(requests(20))
            killed.kill()
            killed.wait()
            killed.stdout.close()
            # More than the kernel's buffer and the 8 MiB kept for one reader.
            answers = server.answers(requests(1100, name="big", length=2000, max_tokens=1), 32)
            good.wait(lambda: good.num_finished == 1120)
        lines = drained(stalled, lambda: server.answers(requests(2)))
    stalled.close()
    assert_answered([*first, *answers])
    assert_sound(good.records, 128)
    assert_told([*first, *answers], good.records)
    lost = [line["n"] for line in lines if line["k"] == "lost"]
    assert len(lost) == 1 and lines[-1]["k"] in ("o", "s", "cost", "a")
    kinds = [line["k"] for line in lines]
    after = kinds[kinds.index("lost") + 1 :]
    assert {*after[: after.index("key")]} == {"one"}  # a keyframe, line by line
    said(
        f"a reader that stalls, another that is killed: {len(first) + len(answers)} requests answered; a "
        f"third missed nothing of {len(good.steps):,} steps; the stalled one heard of {lost[0]:,} lost lines"
    )


_READER = """
import socket, sys
reader = socket.socket(socket.AF_UNIX)
reader.connect(sys.argv[1])
reader.recv(100)
print("reading", flush=True)
while reader.recv(1 << 16):
    pass
"""


def drained(reader: socket.socket, ask: Callable[[], object]) -> list[dict]:
    """What a reader finds that reads again: what was kept for it, a loss, and what is new."""
    reader.settimeout(2)
    data = bytearray()

    def read() -> None:
        try:
            while piece := reader.recv(1 << 20):
                data.extend(piece)
        except TimeoutError:
            pass

    read()
    ask()  # the loss is said before the next keyframe, and that comes with a step
    read()
    ask()
    read()
    return [json.loads(line) for line in bytes(data).splitlines()]


def test_a_killed_server_is_said_and_the_next_one_is_followed(
    model: Path, tmp_path: Path, said: Callable[[str], None]
) -> None:
    place = tmp_path / "run" / "s"
    with vllm_server(model, tmp_path, f"unix:{place}") as server, following(f"unix:{place}") as one:
        server.answers(requests(4))
        one.wait(lambda: one.num_finished == 4)
        before = len(one.steps)
        header = connected(place).recv(1 << 16).partition(b"\n")[0]
        os.kill(json.loads(header)["pid"], signal.SIGKILL)
        one.wait(lambda: one.state.failure)
        assert one.state.failure is not None
        why = one.state.failure.message
        assert place.exists()  # nobody could remove it
        server.end()
        with vllm_server(model, tmp_path, f"unix:{place}") as anew:
            one.wait(lambda: one.state.failure is None, 60)
            answers = anew.answers(requests(4))
            one.wait(lambda: one.num_finished == 8)
    assert_answered(answers)
    assert [step.step for step in one.steps] == list(range(1, len(one.steps) + 1))
    said(
        f"a killed server: “{why.replace(str(tmp_path), '…')}”; {before} steps before it, then followed anew"
    )
