"""A real vLLM server with the recorder in it, and a client that asks it for tokens."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.attach import keeper
from engine.attach.vllm_command import serve_command, serve_environment

ROOT = Path(__file__).parents[2]
VLLM = Path(os.environ.get("CBTUI_PEER_PYTHON", ROOT / ".venv-peers" / "bin" / "python")).with_name("vllm")
#: A start that takes longer has failed.
START_S = 300.0


@dataclass(frozen=True)
class Asked:
    """A request of token ids. `choices`: answers wanted of it (`n`); `stops_at`: tokens that end it."""

    name: str
    prompt: tuple[int, ...]
    max_tokens: int
    choices: int = 1
    temperature: float = 0.0
    stops_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What the API returned for a request: the tokens of each choice and why it ended."""

    asked: Asked
    outputs: tuple[tuple[int, ...], ...]
    reasons: tuple[str, ...]


class VllmServer:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_S
        while not self.is_healthy():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.2)

    def answer(self, asked: Asked) -> Answer:
        """Ask and wait for the answer."""
        body = {
            "prompt": list(asked.prompt),
            "max_tokens": asked.max_tokens,
            "n": asked.choices,
            "temperature": asked.temperature,
            "ignore_eos": True,
            "stop_token_ids": list(asked.stops_at),
            "return_token_ids": True,
        }
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "X-Request-Id": asked.name},
        )
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            choices = json.load(answer)["choices"]
        choices.sort(key=lambda choice: choice["index"])
        return Answer(
            asked,
            tuple(tuple(choice["token_ids"]) for choice in choices),
            tuple(choice["finish_reason"] for choice in choices),
        )

    def answers(self, all_asked: Iterable[Asked], at_once: int = 16) -> list[Answer]:
        """Ask many at once."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(self.answer, all_asked))

    def end(self) -> None:
        """As `kill` and a service manager end one; returns when it has gone."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def vllm_server(
    model: Path,
    folder: Path,
    stream: str,
    *arguments: str,
    command: tuple[str, ...] = (str(VLLM),),
    environment: Mapping[str, str] | None = None,
) -> Iterator[VllmServer]:
    """A server that answers, recording to `stream` (as `CBTUI_VLLM_STREAM`).

    Args:
        folder: for its log.
        command: vLLM's command line.
        environment: more variables for it.
    """
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    usual = ("--max-model-len", "512", "--max-num-seqs", "4", "--dtype", "float32", "--enforce-eager")
    names = {one for one in arguments if one.startswith("--")}
    kept = [part for name, *value in _pairs(usual) if name not in names for part in (name, *value)]
    line = [*command[:-1], *serve_command(command[-1], [str(model), *kept, *arguments], port)]
    log = folder / "vllm.log"
    variables = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # workers of one machine with one node of memory
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        **serve_environment(stream),
        **(environment or {}),
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, keeper.__file__, *line],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env=variables,
            start_new_session=True,
        )
    server = VllmServer(process, port, log)
    try:
        server.wait_until_healthy()
        yield server
    finally:
        server.end()


def _pairs(arguments: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Options, each with its value if it has one."""
    starts = [place for place, one in enumerate(arguments) if one.startswith("--")]
    for start, stop in zip(starts, [*starts[1:], len(arguments)], strict=True):
        yield arguments[start:stop]
