"""Metrics over HTTP for as long as a command or a screen runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engine.prometheus import MetricsServer


@contextmanager
def serving_metrics(port: int | None) -> Iterator[MetricsServer | None]:
    """A server for as long as the `with` block; where it is stands on standard error.

    Args:
        port: None: there is none.

    Raises:
        MetricsError: it cannot be had.
    """
    if port is None:
        yield None
        return
    server = MetricsServer(port)
    print(f"cbtui: metrics at {server.url}", file=sys.stderr)
    try:
        yield server
    finally:
        server.close()
