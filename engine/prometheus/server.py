"""`/metrics` over HTTP on the loopback address, for as long as engines run.

Owns the two threads: one folds the records engines hand over, one answers. An engine only puts a record
into a queue, so a slow reader never holds it up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

from engine.prometheus.totals import Totals
from engine.stream.records import Record

HOST = "127.0.0.1"
PATH = "/metrics"
#: Names this machine calls itself by. A page somewhere else may get its own name to point here (DNS
#: rebinding) and read along; its requests carry that name.
LOOPBACK_NAMES = ("127.0.0.1", "localhost")
#: A request that does not come to its end is given up, seconds.
TIMEOUT_S = 10.0
#: Requests answered at a time; one more is told so. A scrape takes milliseconds.
MOST_AT_A_TIME = 8

_FULL = b"HTTP/1.0 503 Too many at a time\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

Labels = tuple[str, str]


class MetricsError(ValueError):
    """Metrics cannot be served; the message is one sentence for the user."""


class MetricsServer:
    """Serves the figures of every engine it has a `reader` for.

    Args:
        port: to listen on; 0: any free one (see `port`).

    Raises:
        MetricsError: `prometheus_client` is not installed, or the port cannot be had.
    """

    def __init__(self, port: int) -> None:
        self._totals: dict[Labels, Totals] = {}
        self._lock = threading.Lock()
        self._news: SimpleQueue[tuple[Labels, Record] | None] = SimpleQueue()
        self._http = _listening(port, self._totals, self._lock)
        self._threads = [
            threading.Thread(target=self._fold, name="metrics", daemon=True),
            threading.Thread(target=self._http.serve_forever, args=(0.1,), name="metrics http", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}{PATH}"

    def reader(self, model_name: str, engine: str = "0") -> Callable[[Record], None]:
        """What to call with each record of an engine; returns at once.

        Args:
            model_name, engine: the labels its figures carry.
        """
        labels = (model_name, engine)
        with self._lock:
            self._totals[labels] = Totals()
        return lambda record: self._news.put((labels, record))

    def close(self) -> None:
        """Stop listening; what readers are called with afterwards is dropped."""
        self._http.shutdown()
        self._http.server_close()
        self._news.put(None)
        for thread in self._threads:
            thread.join()

    def _fold(self) -> None:
        while (news := self._news.get()) is not None:
            labels, record = news
            with self._lock:
                self._totals[labels].apply(record)


def is_loopback(host: str | None) -> bool:
    """Whether a request's `Host` header names this machine."""
    return (host or "").rpartition(":")[0] in LOOPBACK_NAMES or host in LOOPBACK_NAMES


def _listening(port: int, totals: Mapping[Labels, Totals], lock: threading.Lock) -> ThreadingHTTPServer:
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        from engine.prometheus.families import EngineCollector
    except ImportError:
        raise MetricsError(
            "--metrics needs the package prometheus-client: pip install prometheus-client"
        ) from None
    registry = CollectorRegistry()
    registry.register(EngineCollector(totals, lock))

    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT_S

        def do_GET(self) -> None:
            host, origin = self.headers.get("Host"), self.headers.get("Origin")
            if not is_loopback(host):
                self.send_error(403, "Ask for 127.0.0.1 or localhost")
            elif origin is not None and origin.lower() != f"http://{host}".lower():
                self.send_error(403, "Not for pages of other sites")
            elif self.path.partition("?")[0] != PATH:
                self.send_error(404, f"The metrics are at {PATH}")
            else:
                # Not what `Accept` prefers: as OpenMetrics the client writes the colon of a name as an
                # underscore, and the names would depend on who asks.
                body = generate_latest(registry)
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: standard error is the screen's, or the command's own words'."""

    try:
        server = _FewAtATime((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise MetricsError(
            f"no metrics on port {port}: {getattr(error, 'strerror', None) or error}"
        ) from None
    return server


class _FewAtATime(ThreadingHTTPServer):
    """No more than `MOST_AT_A_TIME` threads, however many connect and say nothing."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MOST_AT_A_TIME)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.sendall(_FULL)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()
