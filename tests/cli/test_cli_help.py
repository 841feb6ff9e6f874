"""What `--help` says and how it looks, and what the shell is offered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from cbtui.cli.app import app
from cbtui.cli.engine_options import EngineOptions, SamplingOptions
from cbtui.cli.model_options import RunsOn
from cbtui.cli.option_groups import with_groups
from cbtui.cli.program import COMMANDS
from engine.scheduling.modes import MODES
from engine.scheduling.policies import POLICIES
from tests.cli.conftest import Ended

Cbtui = Callable[..., Ended]


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of each command, and the command."""

    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield words, command
        for name, inner in getattr(command, "commands", {}).items():
            yield from below((*words, name), inner)

    yield from below((), typer.main.get_command(app))


WORDS = [words for words, _ in commands()]


def test_every_command_is_listed_for_the_hints() -> None:
    assert {words[0] for words in WORDS if words} == set(COMMANDS)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_help_fits_80_columns_and_names_no_types(
    cbtui: Cbtui, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbtui.cli.screen_options.need_terminal", lambda **_: None)
    ended = cbtui(*words, "--help")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= 80
    for jargon in ("<bool>", "<int", "<str>", "<float", "list[", "x>=", "x<=", "no-prefix", "…]"):
        assert jargon not in ended.out
    assert sum("Show this text." in line for line in lines) == 1


@pytest.mark.parametrize("words", [w for w in WORDS if w in ((), ("models",))], ids=" ".join)
def test_in_a_list_each_command_takes_one_line(cbtui: Cbtui, words: tuple[str, ...]) -> None:
    lines = [line.strip("│ ") for line in cbtui(*words, "--help").out.splitlines() if line.startswith("│")]
    inner = [line.split()[0] for line in lines if not line.startswith("--")]
    assert [w[-1] for w in WORDS if w[:-1] == words and w] == [name for name in inner if name != "copy"]


def test_help_says_the_exit_codes(cbtui: Cbtui) -> None:
    out = " ".join(cbtui("--help").out.split())
    for words in ("0 well", "1 bad news", "2 it could not be done", "130 ctrl+c", "141 the reader"):
        assert words in out


def test_a_shared_option_is_the_same_in_every_command() -> None:
    groups = (RunsOn, EngineOptions, SamplingOptions)
    shared = {field.name for group in groups for field in fields(group)}
    shared |= {"model", "mode", "limit", "arrivals", "record", "metrics", "as_json", "theme", "speed"}
    seen: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for words, command in commands():
        for option in command.params:
            if option.name in shared and (words, option.name) != (("bench",), "slots"):  # several there
                seen[option.name].add((tuple(option.opts), option.help, option.default, option.metavar))
    assert set(seen) == shared
    assert {name for name, forms in seen.items() if len(forms) > 1} == set()


@dataclass(frozen=True, kw_only=True)
class Pair:
    left: Annotated[int, typer.Option(help="l")] = 1
    right: Annotated[int, typer.Option(help="r")] = 2


def test_a_group_is_its_options_and_comes_back_as_a_group() -> None:
    def command(name: str, *, pair: Pair, last: bool = False) -> int:
        assert (name, last) == ("n", True)
        return 10 * pair.left + pair.right

    assert with_groups(command)(name="n", left=3, right=4, last=True) == 34


def test_two_options_of_one_name_are_refused() -> None:
    def command(left: int, pair: Pair) -> int:
        return 0

    with pytest.raises(TypeError, match="left"):
        with_groups(command)


def completed(line: str, shell: str = "bash") -> list[str]:
    """What the real program offers at the end of a command line, as its completion script asks."""
    environment = os.environ | {
        "_CBTUI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "cbtui"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("cbtui ", set(COMMANDS)),
        ("cbtui co", {"compare"}),
        ("cbtui models ", {"check", "list", "fetch"}),
        ("cbtui run --mode ", set(MODES)),
        ("cbtui launch --policy ", set(POLICIES)),
        ("cbtui run --prefix", {"--prefix-caching"}),
        ("cbtui --prefix", {"--prefix-caching"}),
        ("cbtui --demo --prefix", {"--prefix-caching"}),
        ("cbtui --mode ", set(MODES)),
        ("cbtui --he", {"--help"}),
    ],
)
def test_the_shell_is_offered_what_there_is(line: str, offered: set[str]) -> None:
    assert set(completed(line)) == offered


def test_the_completion_script_is_the_shells() -> None:
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "cbtui", "--show-completion", "bash"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    script = done.stdout + "\ncomplete -p cbtui\n"
    checked = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert "-F _cbtui_completion" in checked.stdout


def test_installing_completion_tells_the_shell(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("# mine\n")
    environment = os.environ | {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    words = [sys.executable, "-m", "cbtui", "--install-completion", "bash"]
    subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    script = f". {tmp_path}/.bashrc; complete -p cbtui"
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert "-F _cbtui_completion" in done.stdout
    assert (tmp_path / ".bashrc").read_text().startswith("# mine\n")
