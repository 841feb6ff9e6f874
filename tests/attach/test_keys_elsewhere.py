"""Keys that can do nothing with a recording or a server: left out where keys are named, answered where they
are pressed. One rule, tried with every key on everything that can be looked at."""

from __future__ import annotations

import pytest
from scripted import ScriptedSource, Watcher
from textual.pilot import Pilot

from cbtui import orders
from cbtui.app import CbtuiApp
from cbtui.keys import SCREEN_KEYS, Key
from cbtui.keys_shown import NOT_HERE
from cbtui.looks.pieces import plain
from cbtui.screens.help import HelpScreen, KeyGroup, Pairs
from cbtui.widgets.key_bar import KeyBar
from cbtui.widgets.prompt_bar import PromptBar
from engine.attach import llama, loop, stream, vllm
from engine.attach.vllm_facts import provenance_of
from engine.attach.vllm_lines import Header
from engine.live import replay
from engine.live.commands import Command, Configure, SetMode, SetSpeed
from engine.live.load import LoadSpec, StartLoad, StopLoad
from engine.live.state import EngineState
from engine.stream.records import Provenance
from tests.app.replay import Feeder, drive

HEADER = Header(1, "m", 0.0, 0.0, 7, vllm="0.32.0")
#: What can be looked at, as a loop publishes it.
ELSEWHERE = {
    "recording": EngineState(is_recording=True, refused=replay.REFUSED),
    "llama.cpp": EngineState(
        provenance=Provenance(engine="llama.cpp server", inferred=llama._INFERRED, absent=llama._ABSENT),
        refused=loop.REFUSED,
    ),
    "vLLM by its metrics": EngineState(
        provenance=Provenance(engine="vLLM", inferred=vllm._INFERRED, absent=vllm._ABSENT),
        refused=loop.REFUSED,
    ),
    "vLLM, started here": EngineState(provenance=provenance_of(HEADER, ""), refused=loop.REFUSED),
    "vLLM by a socket": EngineState(
        provenance=provenance_of(HEADER, ""), refused=(*loop.REFUSED, *stream.REFUSED)
    ),
}
HERE = EngineState()


def shown_changes(state: EngineState) -> dict[str, object]:
    return {name: getattr(state, name) for name in ("is_recording", "provenance", "refused")}


def test_on_an_engine_here_every_key_works() -> None:
    assert not [key.id for key in SCREEN_KEYS if orders.why_not(HERE, key)]


@pytest.mark.parametrize("state", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_what_asks_for_one_thing_is_refused_for_one_reason(state: EngineState) -> None:
    reasons: dict[str, set[str]] = {}
    for key in SCREEN_KEYS:
        reasons.setdefault(key.asks, set()).add(orders.why_not(state, key))
    assert all(len(found) == 1 for found in reasons.values()) and reasons[""] == {""}
    actions: dict[str, set[str]] = {}
    for key in SCREEN_KEYS:
        actions.setdefault(key.action.partition("(")[0], set()).add(key.asks)
    assert all(len(found) == 1 for found in actions.values())
    for what in ("mode", "limits", "load", "model"):
        assert reasons[what] != {""}


@pytest.mark.parametrize("state", ELSEWHERE.values(), ids=ELSEWHERE.keys())
@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
def test_every_key_that_can_do_nothing_says_why_and_is_named_nowhere(
    state: EngineState, size: tuple[int, int]
) -> None:
    refused = [key for key in SCREEN_KEYS if orders.why_not(state, key)]
    assert refused
    feeder = Feeder()
    feeder.ready(**shown_changes(state))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        bar = app.main.query_one(PromptBar)
        app.main.look()
        await pilot.press("escape")
        for key in refused:
            for name in key.keys.split(","):
                bar.say()
                await pilot.press(name)
                await pilot.pause()
                assert bar.notice == orders.why_not(state, key), (key.id, name)
                assert not feeder.commands and app.screen is app.main, key.id
        named = "\n".join(plain(one.line) for one in app.main.query_one(KeyBar)._made())
        titles = {command.title for command in app.get_system_commands(app.screen)}
        for key in refused:
            assert key.tooltip not in titles, key.id
            if key.label:
                assert f"{key.shown} {key.label}" not in named, key.id
        assert "? help" in named and "q quit" in named
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        told = [pair for one in app.screen.query(KeyGroup) for pair in one.query_one(Pairs)._pairs]
        marked = [words.removesuffix(NOT_HERE) for _, words in told if words.endswith(NOT_HERE)]
        assert set(marked) == {words for key in refused if (words := _words(key))}
        assert app.screen.query("#help-not-here")

    drive(feeder, script, size)


def _words(key: Key) -> str:
    return key.tooltip if key.help is None else key.help


COMMANDS: dict[str, tuple[Command, ...]] = {
    "mode": (SetMode("static"),),
    "limits": (Configure(max_num_seqs=2),),
    "pace": (SetSpeed(4),),
    "load": (StartLoad(LoadSpec()), StopLoad()),
}


def test_a_servers_loop_gives_the_same_reasons_to_commands_as_to_keys() -> None:
    watcher = Watcher(ScriptedSource())
    watcher.turn(2)
    assert dict(watcher.state.refused) == dict(loop.REFUSED)
    for what, commands in COMMANDS.items():
        for command in commands:
            watcher.commands.put(command)
            watcher.turn()
            assert watcher.state.rejection is not None
            assert watcher.state.rejection.message == watcher.state.why_refused(what)


@pytest.mark.parametrize("what", ["prompts", "cancel"])
def test_a_streams_reasons_are_those_it_gives(what: str) -> None:
    source = stream.StreamSource(stream.Path("nowhere"))
    asked = {"prompts": lambda: source.submit(()), "cancel": lambda: source.cancel("r0")}
    with pytest.raises(stream.Refused) as raised:
        asked[what]()
    assert str(raised.value) == dict(stream.REFUSED)[what]
