"""How often a llama.cpp server is looked at: as fast as its steps, seldomer where a look costs it much."""

from __future__ import annotations

import json

import pytest

from engine.attach import asking
from engine.attach.address import Key, read_address
from engine.attach.llama import LOOK_IDLE_S, LOOK_LEAST_S, LOOK_MOST_S, LOOK_SHARE, LlamaSource


class Server:
    """Answers on a clock of its own, each answer taking `cost_s`; a token every `step_s` while it is busy."""

    def __init__(self, cost_s: float, step_s: float, is_busy: bool) -> None:
        self.cost_s, self.step_s, self.is_busy = cost_s, step_s, is_busy
        self.now_s = 0.0
        self.looks: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def get(self, path: str) -> tuple[int, bytes]:
        self.now_s += self.cost_s
        if path != "/slots":
            return 404, b""
        self.looks.append(self.now_s)
        slot: dict[str, object] = {"id": 0, "n_ctx": 10_000, "is_processing": self.is_busy}
        if self.is_busy:
            made = int(self.now_s / self.step_s) + 1
            slot |= {"id_task": 1, "n_prompt_tokens": 5 + made, "n_prompt_tokens_processed": 5}
            slot["next_token"] = [{"n_decoded": made, "n_remain": 9_000}]
        return 200, json.dumps([slot]).encode()

    def ask(self, path: str) -> bytes | None:
        status, body = self.get(path)
        return body if status == 200 else None

    def json(self, path: str) -> object:
        body = self.ask(path)
        return None if body is None else json.loads(body)

    def close(self) -> None:
        pass


def gap(server: Server, monkeypatch: pytest.MonkeyPatch) -> float:
    """Mean seconds between two looks once the pace is found."""
    monkeypatch.setattr(asking, "Http", lambda address, key: server)
    source = LlamaSource(read_address("host"), Key(), now_s=lambda: server.now_s, sleep=server.sleep)
    source.open()
    steps = 0
    while len(server.looks) < 200:
        steps += len(source.read(0.02))
    source.close()
    assert steps > 0 or not server.is_busy
    looks = server.looks[100:]
    return (looks[-1] - looks[0]) / (len(looks) - 1)


@pytest.mark.parametrize(("step_s", "least"), [(0.005, LOOK_LEAST_S), (0.06, 0.015), (0.5, LOOK_MOST_S)])
def test_looks_follow_the_steps(step_s: float, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gap(Server(0.001, step_s, True), monkeypatch)
    assert least - 0.001 <= found <= least + 0.005, "40 to 100 a second"


def test_a_costly_look_takes_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gap(Server(0.1, 0.02, True), monkeypatch) >= 0.1 / LOOK_SHARE - 1e-9


def test_an_idle_server_is_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gap(Server(0.001, 0.02, False), monkeypatch) >= LOOK_IDLE_S - 1e-9
