"""Which source an address wants."""

from __future__ import annotations

from engine.attach.address import Address, Key
from engine.attach.source import Source
from engine.attach.stream import StreamSource


def source_of(address: Address, key: Key) -> Source:
    """A source, not opened yet.

    Raises:
        ValueError: there is none for such an address.
    """
    if address.socket is not None:
        return StreamSource(address.socket)
    raise ValueError("only unix:PATH can be followed so far")
