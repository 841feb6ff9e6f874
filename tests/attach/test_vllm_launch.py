"""A vLLM of our own: its command line, its start, its prompts, and that it ends with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.attach import keeper
from engine.attach.loop import AttachLoop
from engine.attach.source import SourceFailed, SourceStarting
from engine.attach.vllm_child import VllmChild
from engine.attach.vllm_command import (
    check_arguments,
    find_vllm,
    line_to_use,
    names_model,
    scheduler_folder,
    serve_command,
    serve_environment,
)
from engine.attach.vllm_launch import LaunchedVllm
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close, PromptRequest, Restart, Submit
from engine.live.state import EngineState
from engine.stream.records import Finish, StepRecord

HERE = Path(__file__).parent
#: Far longer than any of it takes.
PATIENCE_S = 20.0


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def executable(tmp_path: Path) -> str:
    path = tmp_path / "vllm"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_vllm_serve.py"}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(tmp_path / "cache"))


class Following:
    """A loop over a launched server, turned by hand."""

    def __init__(self, executable: str, *arguments: str) -> None:
        self.commands, self.mailbox, self.history = CommandQueue(), Mailbox(), History()
        self.child = VllmChild(executable, arguments)
        self.loop = AttachLoop(
            LaunchedVllm(self.child), commands=self.commands, mailbox=self.mailbox, history=self.history
        )

    @property
    def state(self) -> EngineState:
        return self.mailbox.latest()

    def until(self, done: Callable[[EngineState], bool]) -> None:
        def is_done() -> bool:
            self.loop.turn()
            return done(self.state)

        until(is_done)

    def ask(self, text: str, tokens: int = 3) -> None:
        self.commands.put(Submit((PromptRequest(prompt=text, max_tokens=tokens),)))

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.history.since(0)[1] if isinstance(record, StepRecord)]


@pytest.fixture
def following(executable: str) -> Iterator[Callable[..., Following]]:
    made: list[Following] = []

    def make(*arguments: str) -> Following:
        made.append(Following(executable, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.loop._source.close()


def test_it_is_started_followed_and_sent_prompts(following: Callable[..., Following], tmp_path: Path) -> None:
    one = following("good", "--wait-for", str(tmp_path / "go"))
    one.ask("typed before it was there")
    one.until(lambda state: bool(state.loading and state.loading.said))
    assert one.state.status == "loading" and one.state.loading is not None
    assert one.state.loading.stage == "starting vLLM: reading its arguments"
    assert one.state.loading.said == ("non-default args: {}",)  # not every line is worth showing
    assert [arriving.prompt_text for arriving in one.state.arriving] == ["typed before it was there"]
    (tmp_path / "go").touch()
    one.until(lambda state: state.status == "idle" and state.step >= 3)
    assert one.state.provenance is not None and one.state.provenance.address.startswith("http://127.0.0.1:")
    one.ask("another", tokens=2)
    one.until(lambda state: state.status == "idle" and state.step == 5)
    assert not one.state.arriving
    assert [record.segments[0].q_len for record in one.steps] == [25, 1, 1, 7, 1]


def test_a_prompt_the_server_refuses_ends_in_an_error(following: Callable[..., Following]) -> None:
    one = following("good")
    one.ask("refuse this")

    def ends() -> list[str]:
        return [end.error for record in one.history.since(0)[1] for end in record.events.finished]

    one.until(lambda state: bool(ends()))
    assert ends() == ["the server says 400: not this one"]
    assert not one.state.arriving


def test_a_prompt_that_meets_a_stop_string_has_stopped_and_was_not_cancelled(
    following: Callable[..., Following],
) -> None:
    one = following("good")
    one.commands.put(Submit((PromptRequest(prompt="one. two.", max_tokens=9, stop=(".",)),)))

    def ends() -> list[Finish]:
        return [end for record in one.history.since(0)[1] for end in record.events.finished]

    one.until(lambda state: bool(ends()))
    assert [(end.reason, end.stop_string) for end in ends()] == [("stop", ".")]


def test_a_start_that_fails_says_why_and_is_tried_again_when_asked(
    following: Callable[..., Following],
) -> None:
    one = following("broken")
    one.until(lambda state: state.failure is not None)
    failure = one.state.failure
    assert failure is not None and failure.stage == "vLLM" and failure.retry_s is None
    assert failure.message == "it ended with exit code 1: ValueError: no such model"
    assert failure.hint == f"less {one.child.log}" and one.child.log.exists()
    for _ in range(20):
        one.loop.turn()
    assert not one.child.is_started  # not by itself
    one.commands.put(Restart())
    one.until(lambda state: state.failure is None)
    one.until(lambda state: state.failure is not None)


def test_a_server_that_dies_while_it_serves(following: Callable[..., Following]) -> None:
    one = following("good")
    one.ask("die")
    one.until(lambda state: state.failure is not None)
    assert one.state.failure is not None
    assert one.state.failure.message == "it ended with exit code 3: RuntimeError: the engine core died"
    assert len(one.steps) == 3  # what was seen stays
    one.commands.put(Restart())
    one.until(lambda state: state.status == "idle")
    one.ask("again")
    one.until(lambda state: state.step == 6)


def group_of(child: VllmChild) -> int:
    """The process group the server runs in: its keeper's only child."""
    assert child._process is not None
    children = Path(f"/proc/{child._process.pid}/task/{child._process.pid}/children")
    until(lambda: bool(children.read_text().strip()))
    return int(children.read_text())


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")


@needs_proc
@pytest.mark.parametrize("arguments", [("slow",), ("slow", "stubborn")])
def test_it_ends_when_it_is_closed(
    executable: str, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = tmp_path / "keeper.py"
    hasty.write_text(Path(keeper.__file__).read_text().replace("GRACE_S = 5.0", "GRACE_S = 0.2"))
    monkeypatch.setattr(keeper, "__file__", str(hasty))
    child = VllmChild(executable, arguments)
    child.start()
    group = group_of(child)
    until(lambda: "just a line" in child.log.read_text())
    child.end(wait_s=0)  # quitting waits for nothing
    until(lambda: is_gone(group))
    child.close()


@needs_proc
def test_it_ends_when_this_program_is_killed(executable: str, tmp_path: Path) -> None:
    code = f"""
import time
import os
os.environ["CBTUI_CACHE_DIR"] = {str(tmp_path)!r}
from engine.attach import vllm_child
child = vllm_child.VllmChild({executable!r}, ["slow"])
child.start()
print(child._process.pid, flush=True)
time.sleep(100)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    keeper_pid = int(program.stdout.readline())
    children = Path(f"/proc/{keeper_pid}/task/{keeper_pid}/children")
    until(lambda: bool(children.read_text().strip()))
    group = int(children.read_text())
    program.send_signal(signal.SIGKILL)
    program.wait()
    program.stdout.close()
    until(lambda: is_gone(group))


def test_its_log_is_this_users_alone_and_not_written_through_a_link(executable: str, tmp_path: Path) -> None:
    child = VllmChild(executable, ["slow"])
    child.start()
    assert child.log.parent.parent == tmp_path / "cache"
    assert (child.log.stat().st_mode & 0o777, child.log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    child.end()
    child.log.unlink()
    child.log.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        child.start()
    assert not (tmp_path / "precious").exists()
    child.close()


def test_the_keeper_gives_the_exit_code_on(tmp_path: Path) -> None:
    def kept(*command: str) -> int:
        run = subprocess.run(
            [sys.executable, keeper.__file__, *command],
            stdin=subprocess.PIPE,
            capture_output=True,
            check=False,
        )
        return run.returncode

    assert kept(str(tmp_path / "nothing")) == 127


def test_what_it_left_of_its_group_does_not_stay(tmp_path: Path) -> None:
    """A server whose front has crashed may leave workers behind."""
    script = "sleep 300 & echo $!; exit 7"
    run = subprocess.Popen(
        [sys.executable, keeper.__file__, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert run.stdout is not None and run.stdin is not None
    left = int(run.stdout.readline())
    assert run.wait(PATIENCE_S) == 7

    def is_over() -> bool:
        status = Path(f"/proc/{left}/stat")
        return not status.exists() or status.read_text().split()[2] == "Z"

    if Path("/proc").exists():
        until(is_over)
    run.stdout.close()
    run.stdin.close()


# -- the command line ----------------------------------------------------------------------------


def test_the_command_line(executable: str) -> None:
    command = serve_command(executable, ["m", "--max-num-seqs", "3", "--tensor-parallel-size", "2"], 8123)
    assert command[1:] == (
        "serve m --max-num-seqs 3 --tensor-parallel-size 2 --host 127.0.0.1 --port 8123 "
        "--scheduler-cls cbtui_vllm.scheduler.RecordingScheduler".split()
    )
    environment = serve_environment("unix:/a/b", {"PYTHONPATH": "/x", "HOME": "/home/u"})
    assert environment == {
        "HOME": "/home/u",
        "PYTHONPATH": f"{scheduler_folder()}{os.pathsep}/x",
        "CBTUI_VLLM_STREAM": "unix:/a/b",
    }
    assert [path.name for path in scheduler_folder().iterdir() if path.name != "__pycache__"] == [
        "cbtui_vllm"
    ]
    assert line_to_use().startswith("PYTHONPATH=") and "--scheduler-cls cbtui_vllm." in line_to_use("m")


@pytest.mark.parametrize(
    "argument", ["--port", "--port=80", "--host", "--scheduler-cls=x", "--scheduler_cls"]
)
def test_what_is_set_here_cannot_be_set_there(argument: str) -> None:
    with pytest.raises(ValueError, match="is set by cbtui"):
        check_arguments(["m", argument])


def test_where_vllm_is(executable: str, tmp_path: Path) -> None:
    assert find_vllm(executable, {}) == executable
    assert find_vllm(None, {"CBTUI_VLLM": executable}) == executable
    assert find_vllm(None, {"PATH": str(tmp_path)}) == executable
    with pytest.raises(ValueError, match="there is no vllm on PATH"):
        find_vllm(None, {"PATH": str(tmp_path / "nowhere")})
    with pytest.raises(ValueError, match="cannot be run"):
        find_vllm("/nowhere/vllm", {"PATH": str(tmp_path)})


def test_whether_a_model_is_named() -> None:
    assert names_model(["m", "--dtype", "float32"]) and names_model(["--dtype", "x", "--model", "m"])
    assert names_model(["--model=m"]) and not names_model(["--dtype", "float32"]) and not names_model([])


def test_a_start_that_cannot_be(tmp_path: Path) -> None:
    source = LaunchedVllm(VllmChild(str(tmp_path / "gone"), ()))

    ends: list[SourceFailed] = []

    def ended() -> bool:
        try:
            source.open()
        except SourceStarting:
            return False
        except SourceFailed as exc:
            ends.append(exc)
            return True
        raise AssertionError("it cannot be open")

    until(ended)
    source.close()
    assert "exit code 127" in ends[0].failure.message


def test_closing_ends_the_loop(following: Callable[..., Following]) -> None:
    one = following("slow")
    one.commands.put(Close())
    one.loop.run()
    assert one.state.status == "closed"
    assert not one.child.is_started
