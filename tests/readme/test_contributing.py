"""What the README says about adding things, done with the very code that stands there."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml
from reading import ROOT, code, section
from textual.app import App, ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from cbtui.cli import export_command
from cbtui.cli.program import COMMANDS
from cbtui.screens.panels import Panel
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.scheduling.modes import MODES
from engine.scheduling.policies import POLICIES, last_in_order, policy_named
from engine.session import drain
from engine.workload import registry
from engine.workload.lines import BadLine, count_in, lines_of, object_of, text_in
from engine.workload.registry import Format, format_of
from tests.cli.conftest import Ended
from tests.widgets.stage import Stage

POLICY, FORMAT, WIDGET = code("Contributing")


def names_of(text: str, **given: Any) -> dict[str, Any]:
    exec(compile(text, "README.md", "exec"), given)
    return given


@pytest.fixture
def longest_first() -> Any:
    names_of(POLICY, POLICIES=POLICIES, last_in_order=last_in_order)
    yield
    del POLICIES["longest-first"]


@pytest.mark.usefixtures("longest_first")
def test_a_policy_added_as_it_says_orders_admission() -> None:
    runner = FakeRunner()
    runner.start()
    engine_ = Engine(EngineConfig(policy="longest-first", max_num_seqs=1), runner, runner.info)
    for tokens in (2, 9, 5):
        engine_.add_request([1, 2, 3], SamplingParams(max_tokens=tokens, ignore_eos=True))
    entered = [admission.request_id for record in drain(engine_) for admission in record.events.admitted]
    assert entered == ["r1", "r2", "r0"]
    assert policy_named("longest-first").summary.startswith("most output tokens first")


@pytest.mark.usefixtures("longest_first")
def test_the_command_line_knows_it(cbtui: Callable[..., Ended]) -> None:
    ended = cbtui("run", "--policy", "longest-first", "--max-tokens", "2", stdin=b"The\n")
    assert (ended.code, ended.err) == (0, "")


def test_a_format_added_as_it_says_is_told_by_content_and_runs(
    cbtui: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = (BadLine, Format, count_in, lines_of, msgspec, object_of, text_in)
    names = names_of(FORMAT, **{thing.__name__: thing for thing in shared})
    monkeypatch.setattr(registry, "FORMATS", (names["QUESTIONS"], *registry.FORMATS))
    data = b'{"question": "The capital", "tokens": 3}\n{"question": "is so", "tokens": "many"}\n'
    assert format_of(data).name == "questions"
    ended = cbtui("run", "-", "--json", stdin=data)
    assert ended.code == 1 and "line 2: `tokens` must be a whole number" in ended.err
    (line,) = map(json.loads, ended.out.splitlines())
    assert (line["prompt"], line["output_tokens"]) == ("The capital", 3)


def test_a_widget_added_as_it_says_shows_a_frame() -> None:
    panel: Panel = names_of(WIDGET, Static=Static, Panel=Panel)["LONGEST"]

    class OnePanel(App[None]):
        def compose(self) -> ComposeResult:
            yield panel.make()

    stage = Stage().tutorial().step(3)
    frame = stage.frame()
    assert frame.record is not None
    longest = max(slot.num_computed_tokens for slot in frame.record.slots)

    async def shown() -> str:
        async with OnePanel().run_test() as pilot:
            widget = pilot.app.query_one("#longest", Widget)
            panel.show(widget, frame)
            await pilot.pause()
            return str(widget.render())

    assert f"longest: {longest} tokens" in asyncio.run(shown())
    assert panel.depends(frame) != panel.depends(stage.step().frame())


def test_where_it_says_things_go_there_are_such_places() -> None:
    text = section("Contributing")
    for path in re.findall(r"`((?:engine|cbtui|tests)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    assert "PANELS" in (ROOT / "cbtui/screens/panels.py").read_text()
    assert "FORMATS" in (ROOT / "engine/workload/registry.py").read_text()


def test_the_layout_names_every_package_and_no_other() -> None:
    tree = next(block for block in code("How it is built", "") if "engine/" in block)
    said = set(re.findall(r"(\w+)/", tree))
    there = {
        path.parent.name
        for package in (ROOT / "engine", ROOT / "cbtui")
        for path in package.glob("*/__init__.py")
    }
    assert there | {"engine", "cbtui", "tests"} == said


def test_the_layout_names_every_module_beside_the_packages_and_no_other() -> None:
    tree = next(block for block in code("How it is built", "") if "engine/" in block)
    names = [re.match(r"  (\S.*?)(?:  |/| $|$)", line + " ") for line in tree.splitlines()]
    said = {name for found in names if found for name in found[1].strip().split(", ")}
    there = {
        path.stem
        for package in (ROOT / "engine", ROOT / "cbtui")
        for path in package.glob("*.py")
        if not path.stem.startswith("__")
    }
    packages = {path.parent.name for path in ROOT.glob("*/*/__init__.py")}
    assert said - packages == there


def test_every_mode_policy_command_and_export_is_in_it() -> None:
    text = (ROOT / "README.md").read_text()
    for name in (*MODES, *POLICIES, *export_command.FORMATS):
        assert f"`{name}`" in text or f" {name}`" in text, name
    for name in COMMANDS:
        assert f"cbtui {name}" in text or f"`{name}`" in text or name == "launch", name


def test_the_hooks_call_what_is_there_and_the_same_as_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    tools = {shlex.split(hook["entry"])[0] for hook in repository["hooks"]}
    assert tools == {".venv/bin/python", ".venv/bin/lint-imports"}
    makefile = (ROOT / "Makefile").read_text().replace("$(PY)", ".venv/bin/python")
    for hook in repository["hooks"]:
        assert hook["entry"] in makefile
