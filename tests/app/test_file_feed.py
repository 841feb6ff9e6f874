"""A file's requests behind a screen: when they are submitted, and how."""

from __future__ import annotations

from cbtui.following.file_feed import FileFeed
from cbtui.following.link import Link
from engine.live.commands import MadeUp, PromptRequest, Submit
from engine.live.state import EngineState
from engine.runner import ModelInfo

REQUESTS = (
    PromptRequest(prompt="a", arrives_s=1.0),
    PromptRequest(prompt="", made_up=MadeUp(3, "0/1"), verbatim=True, arrives_s=3.0),
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ready(link: Link, *, paused: bool = False) -> None:
    model = ModelInfo(name="m", source="m", has_chat_template=True)
    link.mailbox.publish(EngineState(model=model, status="idle", paused=paused))


def submitted(link: Link) -> list[list[tuple[str, bool]]]:
    return [
        [(request.prompt, request.chat) for request in command.requests]
        for command in link.commands.take_all()
        if isinstance(command, Submit)
    ]


def test_all_at_once_is_one_command_once_the_model_is_there() -> None:
    link = Link()
    feed = FileFeed(REQUESTS, None, link, raw=False)
    feed.look()
    assert submitted(link) == []
    ready(link)
    feed.look()
    feed.look()
    assert submitted(link) == [[("a", True), ("", False)]]


def test_arrivals_come_when_they_are_due_and_a_pause_stops_their_clock() -> None:
    link, clock = Link(), Clock()
    feed = FileFeed(REQUESTS, 2.0, link, raw=True, now_s=clock)
    clock.now = 100.0
    ready(link)
    feed.look()
    assert submitted(link) == [[("a", False)]]
    clock.now = 100.9
    feed.look()
    ready(link, paused=True)
    clock.now = 200.0
    feed.look()
    assert submitted(link) == []
    ready(link)
    clock.now = 200.2
    feed.look()
    assert submitted(link) == [[("", False)]]
