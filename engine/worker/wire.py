"""What the app and the model process say to each other, and how it is framed.

A frame is an 8-byte header (magic, protocol version, length of the body in bytes, big-endian) and a
body: one msgpack message. Orders go to the worker, answers come back. No pickle: a frame can hold
nothing but the structs below. Owns no descriptor and does no input or output.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from engine.runner import Encoded, LoadFailed, Loading, PromptInput, Ready, RunnerError
from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, Reply

MAGIC = b"cbw"
PROTOCOL_VERSION = 2
#: Largest body, bytes. The longest plan is below 1 MB; a prompt file may be some tens.
MAX_FRAME_BYTES = 64 * 1024 * 1024
HEADER = struct.Struct(f">{len(MAGIC)}sBI")

Fault = Literal["garbage", "version", "oversized", "truncated"]


class WireError(RunnerError):
    """What came (or was to go) over the pipe is not this protocol. `fault` says how."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class RunnerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which runner the worker is to make.

    Attributes:
        model: what to load, as the user named it: a Hub id, a folder, a `.gguf` file; None: the default.
        factory: `module:callable` making the runner from (spec, progress); empty: the torch runner.
        options: for the factory; the torch runner's are the fields of `engine.torch_runner.LoadOptions`.
    """

    model: str | None = None
    factory: str = ""
    options: dict[str, str | int | float | bool | None] = {}


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first order: make the runner and load. A heartbeat is due every `heartbeat_s` seconds from now."""

    epoch: int
    spec: RunnerSpec
    heartbeat_s: float = 1.0


class Encode(msgspec.Struct, frozen=True, tag="encode"):
    """Answered by `Encoded` with the same ticket, in order, during a forward too."""

    ticket: int
    prompts: list[PromptInput]


class OpenArena(msgspec.Struct, frozen=True, tag="open_arena"):
    """Answered by `ArenaOpened` or `ArenaFailed`."""

    arena_id: int
    shape: ArenaShape


class RunPlan(msgspec.Struct, frozen=True, tag="run"):
    """Answered by `Replied` or `ForwardFailed`."""

    plan: Plan


class RunCheck(msgspec.Struct, frozen=True, tag="check"):
    """Answered by `CheckDone` or `CheckFailed`."""

    check: Check


class ArenaOpened(msgspec.Struct, frozen=True, tag="arena_opened"):
    """The arena is there."""

    arena_id: int


class ArenaFailed(msgspec.Struct, frozen=True, tag="arena_failed"):
    """There is no memory for the arena."""

    arena_id: int
    message: str


class Replied(msgspec.Struct, frozen=True, tag="reply"):
    """The step is done."""

    reply: Reply


class ForwardFailed(msgspec.Struct, frozen=True, tag="forward_failed"):
    """The step failed; the worker goes on."""

    epoch: int
    step: int
    message: str


class CheckDone(msgspec.Struct, frozen=True, tag="checked"):
    """The piece from `start` on is checked."""

    epoch: int
    start: int
    checked: Checked


class CheckFailed(msgspec.Struct, frozen=True, tag="check_failed"):
    """The piece failed; the worker goes on."""

    epoch: int
    start: int
    message: str


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """The process lives, whatever its main thread is busy with."""


Order = Start | Encode | OpenArena | RunPlan | RunCheck
#: Answers to an order somebody waits for; the rest are events.
Outcome = ArenaOpened | ArenaFailed | Replied | ForwardFailed | CheckDone | CheckFailed
Answer = Loading | Ready | LoadFailed | Encoded | Outcome | Heartbeat

_encoder = msgspec.msgpack.Encoder()
_order_decoder = msgspec.msgpack.Decoder(Order)
_answer_decoder = msgspec.msgpack.Decoder(Answer)


def to_frame(message: Order | Answer) -> bytes:
    """A message as header and body.

    Raises:
        WireError: `oversized`, or `garbage` where a text is not valid Unicode (a lone surrogate).
    """
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError as error:
        raise WireError("garbage", f"a text is not valid Unicode: {error.reason}") from None
    if len(body) > MAX_FRAME_BYTES:
        raise WireError("oversized", f"{len(body):,} bytes in one message; {MAX_FRAME_BYTES:,} is the most")
    return HEADER.pack(MAGIC, PROTOCOL_VERSION, len(body)) + body


def to_order(body: bytes) -> Order:
    """A frame's body as an order.

    Raises:
        WireError: `garbage`.
    """
    return _decoded(_order_decoder.decode, body)


def to_answer(body: bytes) -> Answer:
    """A frame's body as an answer.

    Raises:
        WireError: `garbage`.
    """
    return _decoded(_answer_decoder.decode, body)


_T = TypeVar("_T")


def _decoded(decode: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError("garbage", f"a frame holds no message of this protocol: {error}") from None


class FrameReader:
    """Cuts a stream of bytes, fed in pieces of any size, into bodies of frames.

    A header is judged by the bytes that are there: a stray print is found at its first byte, not when
    eight of them have come.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete with `data`.

        Raises:
            WireError: `garbage`, `version` or `oversized`. The stream is lost then: nothing says where
                the next frame begins.
        """
        self._buffer += data
        bodies, at = [], 0
        while (length := self._body_length(at)) is not None:
            start = at + HEADER.size
            if len(self._buffer) < start + length:
                break
            bodies.append(bytes(self._buffer[start : start + length]))
            at = start + length
        del self._buffer[:at]
        return bodies

    def finish(self) -> None:
        """The stream has ended.

        Raises:
            WireError: `truncated`: in the middle of a frame.
        """
        if self._buffer:
            raise WireError("truncated", f"the stream ended {len(self._buffer)} bytes into a frame")

    def _body_length(self, at: int) -> int | None:
        head = bytes(self._buffer[at : at + HEADER.size])
        if not MAGIC.startswith(head[: len(MAGIC)]):
            raise WireError("garbage", f"not a frame: {head!r}")
        if len(head) > len(MAGIC) and head[len(MAGIC)] != PROTOCOL_VERSION:
            raise WireError("version", f"protocol version {head[len(MAGIC)]}, not {PROTOCOL_VERSION}")
        if len(head) < HEADER.size:
            return None
        length: int = HEADER.unpack(head)[2]
        if length > MAX_FRAME_BYTES:
            raise WireError("oversized", f"a frame of {length:,} bytes; {MAX_FRAME_BYTES:,} is the most")
        return length
