from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.request import SamplingParams
from engine.runner import Encoded, EncodedPrompt, LoadFailed, Loading, ModelInfo, PromptInput, Ready
from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape
from engine.step.plan import Reply, SampledToken
from engine.worker import wire
from engine.worker.wire import FrameReader, WireError, to_answer, to_frame, to_order
from tests.worker.harness import plan_of

ORDERS = [
    wire.Start(2, wire.RunnerSpec(model="m", options={"threads": 2, "dtype": None}), 0.5),
    wire.Encode(7, [PromptInput("grüße \x1b[0m", chat=True)]),
    wire.OpenArena(1, ArenaShape(512, 16, 256)),
    wire.RunPlan(plan_of(1, 2, 3, step=9)),
    wire.RunCheck(Check(2, 16, [1, 2, 3], [4], is_last=True)),
]
ANSWERS = [
    Loading("fetching", 41, 93, "MB", "convert"),
    Ready(ModelInfo(name="n", source="s", eos_token_ids=(2, 3)), 4),
    LoadFailed("broken", "read", "hint"),
    Encoded(7, [EncodedPrompt([1, 2], 1), EncodedPrompt([], error="empty")]),
    wire.ArenaOpened(1),
    wire.ArenaFailed(1, "no memory"),
    wire.Replied(Reply(1, 2, 0.5, 0.1, [None, SampledToken(5, -0.25, [(5, -0.25), (6, -float("inf"))])])),
    wire.ForwardFailed(1, 2, "no memory"),
    wire.CheckDone(2, 16, Checked([4], [0.0], [-0.25])),
    wire.CheckFailed(2, 16, "no memory"),
    wire.Heartbeat(),
]


def bodies(data: bytes) -> list[bytes]:
    return FrameReader().feed(data)


def fault_of(data: bytes) -> str:
    with pytest.raises(WireError) as caught:
        bodies(data)
    return caught.value.fault


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_every_order_arrives_as_it_left(order: wire.Order) -> None:
    assert [to_order(body) for body in bodies(to_frame(order))] == [order]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_every_answer_arrives_as_it_left(answer: wire.Answer) -> None:
    assert [to_answer(body) for body in bodies(to_frame(answer))] == [answer]


@given(st.lists(st.integers(1, 40), max_size=80))
def test_frames_may_arrive_cut_anywhere(cuts: list[int]) -> None:
    stream = b"".join(map(to_frame, ANSWERS))
    reader, got = FrameReader(), []
    for cut in [*cuts, len(stream)]:
        got += reader.feed(stream[:cut])
        stream = stream[cut:]
    reader.finish()
    assert [to_answer(body) for body in got] == ANSWERS


def test_a_stray_print_is_found_at_its_first_byte() -> None:
    assert fault_of(b"h") == "garbage"
    assert fault_of(to_frame(wire.Heartbeat()) + b"hello, is this the terminal?") == "garbage"


def test_another_version_is_said_to_be_one() -> None:
    frame = bytearray(to_frame(wire.Heartbeat()))
    frame[3] = 99
    assert fault_of(bytes(frame)) == "version"


def test_an_oversized_frame_is_refused_by_its_header() -> None:
    assert (
        fault_of(wire.HEADER.pack(wire.MAGIC, wire.PROTOCOL_VERSION, wire.MAX_FRAME_BYTES + 1)) == "oversized"
    )


def test_an_oversized_message_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(WireError) as caught:
        to_frame(wire.Encode(1, [PromptInput("x" * 1001)]))
    assert caught.value.fault == "oversized"


def test_text_that_is_no_unicode_is_not_sent() -> None:
    with pytest.raises(WireError) as caught:
        to_frame(wire.Encode(1, [PromptInput("\ud800")]))
    assert caught.value.fault == "garbage"


@pytest.mark.parametrize("kept", [1, 7, 8, 9])
def test_a_stream_that_ends_inside_a_frame_is_truncated(kept: int) -> None:
    reader = FrameReader()
    assert reader.feed(to_frame(wire.Heartbeat())[:kept]) == []
    with pytest.raises(WireError) as caught:
        reader.finish()
    assert caught.value.fault == "truncated"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xd9\xff",
        msgspec.msgpack.encode({"type": "launch_missiles"}),
        msgspec.msgpack.encode({"type": "run", "plan": {"epoch": "one"}}),
        msgspec.msgpack.encode({"type": "reply"}),
        msgspec.msgpack.encode(
            {"type": "run", "plan": {"epoch": 1, "arena_id": 0, "step": 1, "layout": "spiral", "rows": []}}
        ),
        b"\x81\xa4type\xa3\xff\xfe\xfd",
    ],
)
def test_a_body_that_is_no_message_is_garbage(body: bytes) -> None:
    for read in (to_order, to_answer):
        with pytest.raises(WireError) as caught:
            read(body)
        assert caught.value.fault == "garbage"


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_a_wire_error(data: bytes) -> None:
    try:
        for body in bodies(data):
            to_answer(body)
        to_order(data)
        to_answer(data)
    except WireError:
        pass


def test_a_plan_with_impossible_sampling_is_garbage() -> None:
    frame = to_frame(wire.RunPlan(plan_of(1))).replace(
        msgspec.msgpack.encode("max_tokens") + msgspec.msgpack.encode(SamplingParams().max_tokens),
        msgspec.msgpack.encode("max_tokens") + msgspec.msgpack.encode(0),
    )
    with pytest.raises(WireError):
        to_order(bodies(frame)[0])
