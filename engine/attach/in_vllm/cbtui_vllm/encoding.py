"""How a line becomes bytes without holding up the server's own thread.

One call of `json.dumps` holds Python's lock until it is through, so a long list is encoded in pieces, and
between them others get their turn.
"""

from __future__ import annotations

import json
import time
from typing import Any

Line = dict[str, Any]

#: Items of a list that are encoded in one go: some tenths of a millisecond.
PIECE = 4096


def encoded(line: Line) -> bytes:
    """A line as JSON, with its end."""
    long = [name for name, value in line.items() if isinstance(value, list | tuple) and len(value) > PIECE]
    if not long:
        return _dumped(line) + b"\n"
    short = _dumped({name: value for name, value in line.items() if name not in long})
    parts = [b"%s:[%s]" % (_dumped(name), _in_pieces(line[name])) for name in long]
    return b",".join([short[:-1], *parts] if len(short) > 2 else [b"{" + parts[0], *parts[1:]]) + b"}\n"


def let_others_run() -> None:
    """Give up Python's lock for whoever waits for it."""
    time.sleep(0)


def _in_pieces(items: Any) -> bytes:
    pieces = []
    for start in range(0, len(items), PIECE):
        pieces.append(_dumped(items[start : start + PIECE])[1:-1])
        let_others_run()
    return b",".join(pieces)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
