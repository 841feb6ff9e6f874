"""Stands in for the `vllm` executable: says it starts, tells its steps, answers its OpenAI route, and ends as
it is told to. Runs as a program; what it does depends on the model's name.

    good     serves: each prompt makes as many tokens as asked for
    broken   prints a traceback and exits with 1
    slow     never gets further than starting
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

sys.path.insert(0, os.path.dirname(__file__))


def main() -> None:
    arguments = sys.argv[1:]
    assert arguments[0] == "serve" and arguments[arguments.index("--host") + 1] == "127.0.0.1"
    model, port = arguments[1], int(arguments[arguments.index("--port") + 1])
    print("(APIServer pid=1) INFO 11-30 12:00:00 [api.py:1] non-default args: {}", flush=True)
    print("just a line", flush=True)
    if "stubborn" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if model == "broken":
        print(
            "Traceback (most recent call last):\n  File …\nValueError: no such model\nRuntimeError: see above"
        )
        sys.exit(1)
    while model == "slow":
        time.sleep(1)
    while "--wait-for" in arguments and not os.path.exists(arguments[arguments.index("--wait-for") + 1]):
        time.sleep(0.01)
    import fake_vllm

    with pytest.MonkeyPatch.context() as patch:
        fake_vllm.install(patch)
        from cbtui_vllm.scheduler import RecordingScheduler

        scheduler = RecordingScheduler(fake_vllm.config())
        serve(scheduler, port)


def serve(scheduler: object, port: int) -> None:
    import fake_vllm

    lock = threading.Lock()
    count = iter(range(1000))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(200, b"")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.headers["X-data-parallel-rank"] != "0":
                self.answer(400, b'{"error": {"message": "another rank would take it, unseen"}}')
                return
            if "refuse" in body["prompt"]:
                self.answer(400, b'{"error": {"message": "not this one"}}')
                return
            request = fake_vllm.Request(
                f"cmpl-{next(count)}", list(body["prompt"].encode()), body["max_tokens"]
            )
            request.sampling_params = SimpleNamespace(
                **{**vars(request.sampling_params), "seed": body["seed"]}
            )
            with lock:
                scheduler.add_request(request)
                for _ in range(2 if "stop" in body else 0):
                    fake_vllm.turn(scheduler)
                if "stop" in body:  # as vLLM's web server does once it has seen the text
                    scheduler.finish_requests([request.request_id], None)
                while request.request_id in scheduler.requests:
                    fake_vllm.turn(scheduler)
            end: dict[str, object] = {"finish_reason": "length"}
            if "stop" in body:
                end = {"finish_reason": "stop", "stop_reason": body["stop"][0]}
            piece = {"choices": [{"text": "x", **end}]}
            self.answer(200, f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n".encode())
            if "die" in body["prompt"]:
                print("RuntimeError: the engine core died", flush=True)
                scheduler.shutdown()  # what it did is told
                os._exit(3)

        def answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
