"""A server on loopback that says what a script tells it: recorded answers, and bad ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DATA = Path(__file__).parent.parent / "data" / "attach"

#: What a path answers: its body, or status and body, or pieces of a body one after the other.
Answer = bytes | tuple[int, bytes] | list[bytes]


class FakeServer:
    """Paths and their answers; a callable is asked anew each time, with what was sent."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | Callable[[bytes], Answer]] = {}
        #: (method and path, headers, body) of every request.
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""

    def json(self, path: str, value: object) -> None:
        self.answers[path] = json.dumps(value).encode()

    def paths(self) -> set[str]:
        return {what for what, _, _ in self.asked}


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fake.asked.append((f"{self.command} {self.path}", dict(self.headers), body))
            answer = fake.answers.get(self.path, (404, b"nothing here"))
            if callable(answer):
                answer = answer(body)
            if isinstance(answer, list):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for piece in answer:
                    self.wfile.write(piece)
                    self.wfile.flush()
                self.close_connection = True
                return
            status, content = answer if isinstance(answer, tuple) else (200, answer)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", content.decode())
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
