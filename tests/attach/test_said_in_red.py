"""What a server says no to, and what of another client's request cannot be done or shown, is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_attach_screen import LLAMA, attached, llama_records, seen
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.cli.engine_options import EngineOptions
from cbtui.widgets.centre import failure_text
from cbtui.widgets.prompt_bar import PromptBar
from engine.attach.address import read_address
from engine.attach.plain import harmless
from engine.config import ConfigError
from engine.live.state import Failure
from engine.stream.records import Events, Finish, QuietRecord, Record, RequestRecord
from tests.app.replay import Feeder, drive

WHY = "the server says 400: request (9001 tokens) exceeds the available context size (1024 tokens)"
SIZES = [(160, 50), (120, 40), (80, 24)]


def refused(*numbers: int) -> list[Record]:
    requests = [RequestRecord(f"own-{n}", n, (), f"prompt {n}", 8, 0.0) for n in numbers]
    ends = [Finish(f"own-{n}", "error", None, 0, 0.0, WHY) for n in numbers]
    return [QuietRecord(0, 0.0, Events(submitted=tuple(requests), finished=tuple(ends)))]


@pytest.mark.parametrize("size", SIZES)
def test_a_refused_prompt_is_said_with_its_text_kept_and_its_reason_in_full(size: tuple[int, int]) -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(refused(0), **attached(LLAMA))
        feeder.ready(**attached(LLAMA))
        app.main.look()
        await pilot.pause()
        bar = app.main.query_one(PromptBar)
        assert bar.line.value == "prompt 0" and "A failed: the server says 400" in seen(app)
        bar.line.put("")
        await pilot.press("escape", "down", "enter")
        await pilot.pause()
        assert WHY in seen(app).replace(" │ │ ", " ") or "(1024 tokens)" in seen(app)

    drive(feeder, script, size)


def test_several_are_said_once_and_none_is_put_back() -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(refused(0, 1, 2))
        feeder.ready(**attached(LLAMA))
        app.main.look()
        await pilot.pause()
        assert "3 prompts failed" in seen(app) and not app.main.query_one(PromptBar).line.value

    drive(feeder, script)


def test_another_clients_request_is_not_asked_about_and_its_text_is_said_to_be_missing() -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(llama_records(), upto=13, **attached(LLAMA))
        app.main.look()
        await pilot.press("escape", "down", "x")
        await pilot.pause()
        assert "another client sent" in seen(app) and app.screen is app.main and not feeder.commands
        await pilot.press("enter")
        await pilot.pause()
        text = seen(app)
        assert "No text to show: the server does not tell the tokens" in text
        assert "llama.cpp has cells a slot, no blocks" in text and "none in this step" not in text

    drive(feeder, script)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1", "no port is named, which means 80"),
        ("https://127.0.0.1", "no port is named, which means 443"),
        ("https://127.0.0.1:8080", "begin the address with http://"),
        ("127.0.0.1:8080", ""),
        ("unix:/tmp/x", ""),
    ],
)
def test_an_address_that_may_be_wrong_says_how(address: str, words: str) -> None:
    hint = read_address(address).hint
    assert (words in hint) if words else not hint


def test_a_file_is_no_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cbtui.__main__ import run

    path = tmp_path / "own.trace"
    path.write_text("x")
    assert run(["attach", str(path)]) == 2
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"slots": 0}, {"budget": 2}, {"num_blocks": 0}, {"block_size": 0}])
def test_limits_are_told_by_the_options_somebody_typed(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="--") as caught:
        options_of(options).config("continuous")
    assert "max_num" not in str(caught.value) and "num_blocks" not in str(caught.value)


def options_of(options: dict[str, int]) -> EngineOptions:
    return EngineOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nope/nope-nope", "gpt2", "--model", "x.gguf"])
def test_somebodys_own_words_are_not_capitalised(name: str) -> None:
    assert f"\n{name} is not" in failure_text(Failure("model", f"{name} is not there")).plain
    assert "\nThe model" in failure_text(Failure("model", "the model is not there")).plain


def test_white_space_of_a_server_is_white_space() -> None:
    assert harmless("INFO\tlocal_world_size=1\nx\x1b[2J") == "INFO local_world_size=1 x\ufffd[2J"
