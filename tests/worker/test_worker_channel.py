from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from engine.runner import PromptInput
from engine.worker.channel import Channel
from engine.worker.wire import Encode, FrameReader, Heartbeat, WireError, to_frame, to_order


class Ends:
    """A channel and the worker's two descriptors."""

    def __init__(self) -> None:
        self.orders, orders_write = os.pipe()
        answers_read, self.answers = os.pipe()
        self.channel = Channel(answers_read, orders_write)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.channel.close()
    for fd in (made.orders, made.answers):
        try:
            os.close(fd)
        except OSError:
            pass


def test_receiving_takes_what_is_there_and_never_waits(ends: Ends) -> None:
    assert ends.channel.receive() == []
    frame = to_frame(Heartbeat())
    os.write(ends.answers, frame + frame[:5])
    assert ends.channel.receive() == [Heartbeat()]
    os.write(ends.answers, frame[5:])
    assert ends.channel.receive() == [Heartbeat()]
    assert not ends.channel.ended


def test_the_end_is_seen_after_the_last_answer(ends: Ends) -> None:
    os.write(ends.answers, to_frame(Heartbeat()))
    os.close(ends.answers)
    assert ends.channel.receive() == [Heartbeat()]
    assert ends.channel.ended


def test_garbage_is_a_wire_error(ends: Ends) -> None:
    os.write(ends.answers, b"Traceback")
    with pytest.raises(WireError):
        ends.channel.receive()


def test_an_order_larger_than_the_pipe_does_not_wait_and_arrives_whole(ends: Ends) -> None:
    order = Encode(1, [PromptInput("x" * 3_000_000)])
    # Nobody reads yet: a send that waited for the reader below would never come back.
    ends.channel.send(order)
    reader, got = FrameReader(), []
    while not got:
        got = reader.feed(os.read(ends.orders, 1 << 16))
        ends.channel.wait(0.0)
    assert to_order(got[0]) == order


def test_sending_to_a_worker_that_is_gone_is_no_error(ends: Ends) -> None:
    os.close(ends.orders)
    ends.channel.send(Encode(1, []))
    ends.channel.send(Encode(2, []))


def test_closing_twice_is_allowed(ends: Ends) -> None:
    ends.channel.close()
    ends.channel.close()
    assert ends.channel.receive() == []
    ends.channel.wait(10.0)
