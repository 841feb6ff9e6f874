"""How a server is asked: verified, its key going nowhere else, and bad answers said in a sentence."""

from __future__ import annotations

import json
import ssl

import pytest
from fake_server import DATA, FakeServer, fake_server
from following import following

from engine.attach.address import Key, read_address
from engine.attach.http import Http
from engine.attach.server import ServerSource
from engine.attach.source import SourceLost
from engine.live.commands import PromptRequest, Submit

LOADING = b'{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}'
SLOTS = (DATA / "llama_slots_idle.json").read_bytes()


def opened(server: FakeServer, key: str = "") -> ServerSource:
    source = ServerSource(read_address(server.url), Key(key))
    try:
        source.open()
    finally:
        source.close()
    return source


def why_lost(server: FakeServer, key: str = "") -> str:
    with pytest.raises(SourceLost) as error:
        opened(server, key)
    return str(error.value)


def test_a_llama_server_is_found_with_and_without_its_other_places() -> None:
    with fake_server() as server:
        server.answers["/slots"] = SLOTS
        opened(server)
        server.answers["/props"] = (DATA / "llama_props.json").read_bytes()
        server.answers["/metrics"] = (DATA / "llama_metrics_busy.txt").read_bytes()
        opened(server)
        assert {what.partition(" ")[0] for what, _, _ in server.asked} == {"GET"}, "looking changes nothing"


def test_the_key_goes_with_every_question_and_nowhere_else() -> None:
    with fake_server() as server, fake_server() as elsewhere:
        server.answers["/slots"] = SLOTS
        server.answers["/metrics"] = (302, f"{elsewhere.url}/metrics".encode())
        opened(server, "hunter2")
        assert all(headers["Authorization"] == "Bearer hunter2" for _, headers, _ in server.asked)
        assert not elsewhere.asked, "a redirect would carry the key to another server"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({}, "neither as llama.cpp's server nor as vLLM"),
        ({"/v1/models": b'{"data": []}'}, "tells nothing of its steps"),
        ({"/props": b"{}"}, "--no-slots"),
        ({"/slots": b'[{"id": 0, "is_processing": true}]'}, "too old"),
        ({"/slots": b"[1, 2]"}, "not llama.cpp's"),
        ({"/metrics": b"vllm:broken{ 1\n"}, "not in Prometheus's format"),
        ({"/metrics": (401, b"")}, "CBTUI_API_KEY"),
        ({"/metrics": (502, b"<html>")}, "cannot answer now: status 502"),
        ({"/slots": (503, LOADING)}, "cannot answer now: Loading model (status 503)"),
        ({"/slots": SLOTS, "/metrics": (503, LOADING)}, "cannot answer now: Loading"),
        ({"/slots": (429, b'{"error": "slow\x1b[2J"}')}, "cannot answer now: status 429"),
        ({"/props": b"{}", "/slots": (501, LOADING)}, "--no-slots"),
    ],
)
def test_what_answers_otherwise_is_said_in_a_sentence(answers: dict[str, bytes], words: str) -> None:
    with fake_server() as server:
        server.answers.update(answers)
        assert words in why_lost(server)


def test_nobody_there_is_said_in_a_sentence() -> None:
    with fake_server() as server:
        url = server.url
    with pytest.raises(SourceLost, match=r"does not answer: .*refused"):
        ServerSource(read_address(url), Key()).open()


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.attach.http.ANSWER_MOST", 1000)
    with fake_server() as server:
        server.answers["/metrics"] = b"x" * 5000
        assert "without end" in why_lost(server)


def test_certificates_are_verified() -> None:
    http = Http(read_address("https://127.0.0.1:1"), Key())
    context = http._client._transport._pool._ssl_context  # type: ignore[attr-defined]
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    http.close()


def test_a_server_that_dislikes_extra_fields_is_asked_in_the_standards_own() -> None:
    with fake_server() as server:
        server.answers["/slots"] = SLOTS
        bodies: list[dict[str, object]] = []

        def answer(body: bytes) -> tuple[int, bytes] | list[bytes]:
            bodies.append(json.loads(body))
            if "return_token_ids" in bodies[-1]:
                return 400, b'{"error": {"message": "unknown field"}}'
            text = {"choices": [{"text": "hi\x1b[2J", "finish_reason": "stop"}]}
            return [b"data: " + json.dumps(text).encode() + b"\n\n", b"data: [DONE]\n\n"]

        server.answers["/v1/completions"] = answer
        with following(server.url) as one:
            one.commands.put(Submit((PromptRequest(prompt="Hello"),)))
            one.wait(lambda: one.num_finished == 1)
            finish = next(iter(one.ledger.stories.values())).finish
    assert (
        len(bodies) == 2 and finish is not None and (finish.reason, finish.num_output_tokens) == ("stop", 1)
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((503, b'{"error": {"message": "Loading\\u001b[31m model"}}'), "503: Loading\ufffd[31m model"),
        ((401, b""), "CBTUI_API_KEY"),
        ([b"data: {\n\n"], "not JSON"),
        ([b'data: {"error": {"message": "out of memory"}}\n\n'], "out of memory"),
        ([], "without a reason"),
        ([b"data: " + b"x" * (1 << 22), b"x" * 100], "a line without end"),
    ],
)
def test_a_prompt_the_server_does_not_answer_ends_with_the_cause(answer: object, words: str) -> None:
    with fake_server() as server:
        server.answers["/slots"] = SLOTS
        server.answers["/v1/completions"] = answer  # type: ignore[assignment]
        with following(server.url) as one:
            one.commands.put(Submit((PromptRequest(prompt="Hello"),)))
            one.wait(lambda: one.num_finished == 1)
            finish = next(iter(one.ledger.stories.values())).finish
    assert finish is not None and finish.reason == "error" and words in finish.error
    assert "\x1b" not in finish.error


NO_TOKENS: tuple[bytes | tuple[int, bytes], ...] = (
    b"{",
    b"\xff",
    b"[" * 100_000,
    b"[1]",
    b'{"tokens": [1], "prompt": 2}',
    b'{"tokens": [{"id": 1}], "prompt": []}',
    (500, b"no"),
    b'{"tokens": [], "prompt": "' + b"x" * 200_000 + b'"}',
)


@pytest.mark.parametrize("path", ["/tokenize", "/apply-template"])
def test_a_server_that_tells_no_tokens_of_a_prompt_runs_it_nevertheless(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.attach.llama_routes.ANSWER_MOST", 150_000)
    with fake_server() as server:
        server.answers["/slots"] = SLOTS
        server.answers["/apply-template"] = b'{"prompt": "<user>Hello"}'
        piece = {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}
        server.answers["/v1/chat/completions"] = [b"data: " + json.dumps(piece).encode() + b"\n\n"]
        with following(server.url) as one:
            for number, answer in enumerate(NO_TOKENS, 1):
                server.answers[path] = answer
                one.commands.put(Submit((PromptRequest(prompt="Hello", chat=True),)))
                one.wait(lambda number=number: one.num_finished == number)
            finishes = [story.finish for story in one.ledger.stories.values()]
    assert len([what for what, _, _ in server.asked if what == f"POST {path}"]) >= len(NO_TOKENS)
    for finish in finishes:
        assert finish is not None and (finish.reason, finish.num_output_tokens) == ("stop", 1)
