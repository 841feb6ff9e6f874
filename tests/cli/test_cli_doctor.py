"""`cbtui doctor`: what is wrong is found, named, and comes with what mends it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cbtui.cli import doctor
from cbtui.cli.doctor import Finding
from engine.model_store import DEFAULT_MODEL
from engine.model_store.prepare import converted_folder
from tests.cli.conftest import Ended

Cbtui = Callable[..., Ended]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, empty."""
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def quick_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_TORCH", "print('[\"9.9\", 4, true, false]')")


def found(ended: Ended) -> dict[str, dict[str, str]]:
    return {finding["name"]: finding for finding in json.loads(ended.out)}


def test_the_real_command_finds_everything_and_imports_no_torch() -> None:
    code = (
        "import sys, cbtui.__main__ as m\n"
        "code = m.run(['doctor', '--json'])\n"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode in (0, 1) and done.stderr == ""
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert findings["torch"]["state"] == "ok" and "threads" in findings["torch"]["text"]
    names = {"cbtui", "terminal", "encoding", "packages", "torch", "cores", "memory", "disk", "model"}
    assert names | {"settings", "metrics", "serve", "zst"} <= set(findings)
    assert done.returncode == any(finding["state"] == "wrong" for finding in findings.values())


@pytest.mark.usefixtures("quick_torch", "cache")
def test_a_model_that_is_not_here_yet_is_nothing_wrong(cbtui: Cbtui) -> None:
    ended = cbtui("doctor", "--json")
    model = found(ended)["model"]
    assert (ended.code, model["state"], model["mend"]) == (0, "note", "cbtui models fetch")
    assert found(ended)["torch"]["text"] == "9.9, 4 threads, cpu, cuda"


@pytest.mark.usefixtures("quick_torch")
def test_a_damaged_model_is_and_the_exit_code_is_1(cbtui: Cbtui, cache: Path) -> None:
    converted_folder(DEFAULT_MODEL, cache).mkdir(parents=True)
    ended = cbtui("doctor")
    assert ended.code == 1
    lines = [line for line in ended.out.splitlines() if "manifest is missing" in line]
    assert lines and lines[0].startswith("wrong model")
    assert "-> cbtui models fetch" in ended.out and ended.out.endswith("1 thing wrong\n")


@pytest.mark.usefixtures("quick_torch", "cache")
def test_a_settings_file_that_cannot_be_used_is_named(
    cbtui: Cbtui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text("slots = 'many'\n")
    monkeypatch.setenv("CBTUI_SETTINGS", str(tmp_path / "mine.toml"))
    ended = cbtui("doctor", "--json")
    assert (ended.code, found(ended)["settings"]["state"]) == (1, "wrong")
    assert "slots" in found(ended)["settings"]["text"]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise ImportError('libfoo is missing')", "cannot be imported: ImportError: libfoo is missing"),
        ("import os; os.kill(os.getpid(), 9)", "cannot be imported: exit status -9"),
    ],
)
def test_a_torch_that_cannot_be_imported(program: str, words: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    finding = doctor.torch_found(process)
    assert (finding.state, finding.text) == ("wrong", words) and finding.mend


def terminal(columns: int, lines: int) -> dict[str, Finding]:
    size = os.terminal_size((columns, lines))
    return {finding.name: finding for finding in doctor.terminal(is_terminal=True, size=size)}


@pytest.mark.parametrize(("term", "state"), [("xterm", "ok"), ("dumb", "wrong"), ("", "wrong")])
def test_a_terminal_that_can_only_print(monkeypatch: pytest.MonkeyPatch, term: str, state: str) -> None:
    monkeypatch.setenv("TERM", term)
    assert terminal(80, 24)["terminal"].state == state


@pytest.mark.parametrize(("size", "state"), [((60, 18), "ok"), ((59, 18), "wrong"), ((60, 17), "wrong")])
def test_a_window_too_small_for_the_screen(size: tuple[int, int], state: str) -> None:
    assert terminal(*size)["size"].state == state


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"COLORTERM": "truecolor"}, "16 million"),
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "xterm"}, "16, as far as it says"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "none: NO_COLOR is set"),
    ],
)
def test_colours(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str) -> None:
    for name in ("COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert doctor.colours(os.environ.get("TERM", "")).text == text


@pytest.mark.parametrize(
    ("name", "is_terminal", "state"), [("utf-8", True, "ok"), ("ascii", True, "wrong"), ("", False, "note")]
)
def test_an_encoding_without_blocks(name: str, is_terminal: bool, state: str) -> None:
    assert doctor.encoding(name, is_terminal=is_terminal).state == state


def test_a_package_of_another_version_or_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version

    def other(name: str) -> str:
        if name == "gguf":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0" if name == "textual" else version(name)

    monkeypatch.setattr(importlib.metadata, "version", other)
    finding = doctor.packages()
    assert finding.state == "wrong"
    assert "gguf is missing" in finding.text and "textual is 1.0, not ==8.2.8" in finding.text


def test_too_little_memory_and_an_unknown_amount(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_memory", lambda: 1e8)
    assert next(doctor.memory_and_disk()).state == "wrong"
    monkeypatch.setattr(doctor, "free_memory", lambda: None)
    assert next(doctor.memory_and_disk()).state == "note"


def test_too_little_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = doctor.shutil.disk_usage(cache)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage._replace(free=10**6))
    disk = list(doctor.memory_and_disk())[1]
    assert disk.state == "wrong" and "CBTUI_CACHE_DIR" in disk.mend


def test_this_machine_says_what_is_free() -> None:
    assert (doctor.free_memory() or 0) > 1e6


@pytest.mark.parametrize(
    ("has_pip", "words"), [(True, "-m pip install x"), (False, "uv pip install --python ")]
)
def test_what_mends_goes_into_this_very_environment(
    monkeypatch: pytest.MonkeyPatch, has_pip: bool, words: str
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _: object() if has_pip else None)
    assert words in doctor.install("x") and sys.executable in doctor.install("x")
