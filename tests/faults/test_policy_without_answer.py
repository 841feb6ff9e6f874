"""A policy that never answers: the screen says so, goes on when it does, and can be left."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from restored import assert_restored
from sight import unseen
from terminal import Terminal

from cbtui.app import CbtuiApp
from cbtui.following.driver import LoopDriver
from cbtui.following.link import Link
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions
from cbtui.widgets.header import Header
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.live.commands import PromptRequest, Submit
from engine.request import SamplingParams
from engine.scheduling.policies import POLICIES, asking, unanswered
from tests.faults.silent_policy import SilentPolicy


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], SilentPolicy]]:
    """Registers a policy that is silent in a method."""
    made: list[SilentPolicy] = []

    def make(method: str) -> SilentPolicy:
        made.append(SilentPolicy(method))
        monkeypatch.setitem(POLICIES, "silent", made[0])
        return made[0]

    yield make
    for policy in made:
        policy.may_answer.set()


@pytest.mark.parametrize("method", ["order_key", "victim"])
def test_whoever_looks_sees_which_policy_a_thread_waits_for(
    silent: Callable[[str], SilentPolicy], method: str
) -> None:
    policy, runner = silent(method), FakeRunner()
    engine = Engine(EngineConfig(policy="silent", num_blocks=3, block_size=8), runner, runner.info)

    def work() -> None:
        for _ in range(2):
            engine.add_request([1] * 8, SamplingParams(max_tokens=9, seed=0))
        while engine.has_work:
            engine.step()

    thread = threading.Thread(target=work)
    before = time.monotonic()
    thread.start()
    assert policy.was_asked.wait(10) and thread.ident is not None
    later = time.monotonic() + asking.PATIENCE_S
    assert unanswered(thread.ident, before + asking.PATIENCE_S * 0.99) == ""
    assert unanswered(thread.ident, later).startswith("the policy silent has not answered for ")
    assert unanswered(threading.get_ident(), later) == ""
    policy.may_answer.set()
    thread.join(10)
    assert not thread.is_alive() and unanswered(thread.ident, later) == ""


def with_silent_policy() -> CbtuiApp:
    link = Link()
    options = LaunchOptions(config=EngineConfig(policy="silent"), speed=None)
    return CbtuiApp(
        link, options, driver=LoopDriver(options, link, lambda options: FakeRunner()), pace=Pace()
    )


def test_the_screen_says_it_and_goes_on_as_soon_as_there_is_an_answer(
    silent: Callable[[str], SilentPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.0)
    policy, app = silent("order_key"), with_silent_policy()
    app.link.commands.put(Submit((PromptRequest(prompt="ab", max_tokens=3),)))

    async def body() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            assert await asyncio.to_thread(policy.was_asked.wait, 10)
            while not app.main.follower.state.stuck:
                await pilot.pause(0.02)
            assert "✗ stuck" in app.main.query_one(Header).render_line(0).text
            centre = app.main.query_one("#centre")
            assert centre.display and "The policy silent has not answered for" in str(centre.content)
            await pilot.pause()
            assert not unseen(app.main)
            policy.may_answer.set()
            while app.main.follower.state.step < 3:
                await pilot.pause(0.02)
            assert app.main.follower.state.status == "idle" and not app.main.follower.state.stuck
            assert not centre.display
            app.exit()

    asyncio.run(body())


def test_it_is_said_over_whatever_stands_in_front(
    silent: Callable[[str], SilentPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.0)
    policy, app = silent("order_key"), with_silent_policy()

    async def body() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("f1")
            app.link.commands.put(Submit((PromptRequest(prompt="ab", max_tokens=3),)))
            assert await asyncio.to_thread(policy.was_asked.wait, 10)
            while not app._notifications:  # a notice is a message of its own, behind the state it tells of
                await pilot.pause(0.02)
            assert app.main.follower.state.stuck and app.screen is not app.main
            (said,) = app._notifications
            assert said.message.startswith("the policy silent has not answered for")
            policy.may_answer.set()
            app.exit()

    asyncio.run(body())


def test_the_screen_can_be_left_and_its_thread_is_left_behind(
    silent: Callable[[str], SilentPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.0)
    policy, app = silent("order_key"), with_silent_policy()
    app.link.commands.put(Submit((PromptRequest(prompt="ab", max_tokens=3),)))

    async def body() -> None:
        async with app.run_test() as pilot:
            assert await asyncio.to_thread(policy.was_asked.wait, 10)
            await pilot.press("ctrl+c", "ctrl+c")

    asyncio.run(body())
    assert app.engine is not None
    app.engine.end()
    assert app.engine.stuck_in and not policy.may_answer.is_set()


def test_a_real_terminal_is_given_back_and_the_program_ends() -> None:
    root = Path(__file__).parents[2]
    env = {
        "CBTUI_TEST_RUNNER": "tests.faults.silent_policy:runner",
        "CBTUI_SETTINGS": "",
        "PYTHONPATH": str(root),
    }
    command = [sys.executable, "-m", "cbtui", "launch", "--raw", "--policy", "shortest-first"]
    with Terminal(command, env=env) as terminal:
        terminal.wait_for("type a prompt")
        terminal.press("hello", "enter")
        terminal.wait_for("The policy shortest-first has not answered for")
        terminal.press("ctrl+c", "ctrl+c")
        assert terminal.wait_for_end(20) == 130
        assert b"Traceback" not in terminal.output
        assert_restored(terminal)
