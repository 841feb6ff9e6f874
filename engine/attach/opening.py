"""Which source an address wants."""

from __future__ import annotations

from engine.attach.address import Address, Key
from engine.attach.server import ServerSource
from engine.attach.source import Source
from engine.attach.stream import StreamSource


def source_of(address: Address, key: Key) -> Source:
    """A source, not opened yet; what kind of server an URL is, it finds out when it is opened."""
    if address.socket is not None:
        return StreamSource(address.socket)
    return ServerSource(address, key)
