"""Records over a Unix socket: whole lines in any pieces, losses, and writers that are none."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from engine.attach.source import SourceLost, SourceOver
from engine.attach.stream import StreamSource
from engine.stream.records import Provenance, Record, TraceHeader
from tests.app.replay import fake_records

PROVENANCE = Provenance(engine="vLLM", inferred=(("mask", "it follows from lengths"),))
HEADER = TraceHeader(1, "m", block_size=16, provenance=PROVENANCE)
RECORDS = fake_records()


def line(one: TraceHeader | Record) -> bytes:
    return msgspec.json.encode(one) + b"\n"


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has to be short
        yield Path(folder) / "steps"


@pytest.fixture
def server(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        yield listening


def connected(server: socket.socket, path: Path, first: bytes) -> tuple[StreamSource, socket.socket]:
    """A source that has read the header, and the writer's end. The backlog lets both be in one thread."""
    writers: list[socket.socket] = []
    source = StreamSource(path)
    client = socket.socket.connect

    def connect_then_write(self: socket.socket, address: str) -> None:
        client(self, address)
        writers.append(server.accept()[0])
        writers[0].sendall(first)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_then_write)
        opened = source.open()
    assert opened.provenance == PROVENANCE and opened.info.name == "m"
    return source, writers[0]


def test_records_come_whole_however_they_are_cut(path: Path, server: socket.socket) -> None:
    source, writer = connected(server, path, line(HEADER) + line(RECORDS[0])[:10])
    data = line(RECORDS[0])[10:] + b"".join(map(line, RECORDS[1:]))
    read: list[Record] = []
    for start in range(0, len(data), 777):
        writer.sendall(data[start : start + 777])
        read += source.read(1.0)
    assert read == RECORDS
    assert source.read(0.0) == ()
    writer.close()
    with pytest.raises(SourceLost):
        source.read(1.0)
    source.close()
    with pytest.raises(SourceLost):
        source.read(0.0)


def test_a_writer_that_began_anew_is_not_mixed_with_the_old_one(path: Path, server: socket.socket) -> None:
    source, writer = connected(server, path, line(HEADER))
    step = next(record for record in RECORDS if record.step > 0)
    writer.sendall(line(step) + line(step))
    with pytest.raises(SourceOver):
        source.read(1.0)


@pytest.mark.parametrize("sent", [line(HEADER), b'{"type":"what"}\n', b"\xff\xfe\n", b"\n"])
def test_what_is_no_record_is_a_loss_that_names_the_line(
    path: Path, server: socket.socket, sent: bytes
) -> None:
    source, writer = connected(server, path, line(HEADER))
    writer.sendall(sent)
    with pytest.raises(SourceLost, match="line 2"):
        source.read(1.0)


def test_nobody_there_is_a_loss_in_a_sentence(path: Path) -> None:
    with pytest.raises(SourceLost, match="does not answer"):
        StreamSource(path).open()
