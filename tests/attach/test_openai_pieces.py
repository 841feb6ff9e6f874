"""Streamed answers of an OpenAI route, in the dialects of real servers, and rubbish."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.attach.openai import BadAnswer, Piece, Token, body_of, data_of, read_piece, route_of
from engine.attach.tokens import TokenNumbers
from engine.live.commands import PromptRequest
from engine.runner import Message
from engine.stream.records import UNKNOWN_TOKEN


def piece(num_before: int = 0, **event: object) -> Piece:
    return read_piece(json.dumps(event), num_before)


def told(token_id: int, text: str, logprob: float = -0.5, **more: object) -> dict[str, object]:
    return {"id": token_id, "token": text, "bytes": list(text.encode()), "logprob": logprob} | more


def test_llama_cpp_tells_ids_bytes_and_the_likeliest() -> None:
    top = [told(7042, " Paris"), told(260, " the", -2.5)]
    logprobs = {"content": [told(7042, " Paris", top_logprobs=top)]}
    found = piece(choices=[{"text": " Paris", "logprobs": logprobs}], timings={"predicted_n": 1})
    assert found.tokens == (Token(7042, b" Paris", -0.5, ((7042, b" Paris", -0.5), (260, b" the", -2.5))),)


def test_tokens_that_together_make_one_character_are_counted_and_the_last_has_its_text() -> None:
    logprobs = {"content": [told(233, "く")]}  # what it says of the last byte's id is the whole character
    choice = {"delta": {"content": "く"}, "logprobs": logprobs}
    found = piece(3, choices=[choice], timings={"predicted_n": 5})
    assert [token.data for token in found.tokens] == [b"", "く".encode()]
    assert [token.token_id for token in found.tokens] == [None, None], "no id is guessed"


def test_vllm_tells_ids_and_parallel_lists() -> None:
    choice = {
        "text": " a b",
        "token_ids": [5, 6],
        "logprobs": {"tokens": [" a", " b"], "token_logprobs": [-1, None]},
    }
    found = piece(choices=[choice], usage={"prompt_tokens": 9, "completion_tokens": 2})
    assert found.tokens == (Token(5, b" a", -1.0), Token(6, b" b", None))
    assert (found.num_prompt, found.num_output) == (9, 2)


def test_a_plain_server_gives_texts_and_an_end() -> None:
    assert piece(choices=[{"delta": {"content": "hi"}}]).tokens == (Token(None, b"hi"),)
    assert piece(choices=[{"delta": {"reasoning_content": "hm"}}]).tokens == (Token(None, b"hm"),)
    assert piece(choices=[{"delta": {}, "finish_reason": "stop"}]) == Piece(finish_reason="stop")
    assert piece(choices=[], usage={"completion_tokens": 4}).num_output == 4
    assert piece(error={"message": "too long", "code": 400}).error == "too long"


def test_lines_of_an_event_stream() -> None:
    assert data_of('data: {"a":1}') == '{"a":1}'
    assert [data_of(line) for line in ("", ": ping", "data: [DONE]", "event: x", "data:")] == [None] * 5


def test_what_a_request_is_sent_as() -> None:
    request = PromptRequest(prompt="Hi", max_tokens=9, stop=("x",), top_p=0.9, top_k=3, ignore_eos=True)
    body = body_of(request, "m", 77)
    assert route_of(request) == "/v1/completions" and body["prompt"] == "Hi" and body["seed"] == 77
    assert (body["max_tokens"], body["stop"], body["top_p"], body["top_k"]) == (9, ["x"], 0.9, 3)
    assert not {"logprobs", "top_logprobs"} & set(body_of(request, "m", 77, n_top=0))
    plain = body_of(request, "m", 77, plain=True)
    assert not {"logprobs", "top_k", "ignore_eos", "return_token_ids"} & plain.keys()
    chat = PromptRequest(prompt="Hi", chat=True)
    assert route_of(chat) == "/v1/chat/completions"
    assert body_of(chat, "m", 1)["messages"] == [{"role": "user", "content": "Hi"}]
    turns = PromptRequest(prompt="", chat=True, messages=(Message("system", "Be"), Message("user", "Hi")))
    assert [turn["role"] for turn in body_of(turns, "m", 1)["messages"]] == ["system", "user"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("data", ["", "no", "[]", "1", '"x"', "{" * 5000])
def test_what_is_no_event_is_refused(data: str) -> None:
    with pytest.raises(BadAnswer):
        read_piece(data, 0)


NAMES = (
    "choices text delta content logprobs tokens token_logprobs top_logprobs bytes token id logprob token_ids "
    "usage prompt_tokens completion_tokens prompt_tokens_details cached_tokens timings predicted_n error "
    "message finish_reason reasoning_content"
).split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6), st.integers(0, 3))
def test_any_event_is_read_or_refused(event: dict[str, object], num_before: int) -> None:
    try:
        found = read_piece(json.dumps(event), num_before)
    except BadAnswer:
        return
    numbers = TokenNumbers()
    for token in found.tokens:
        number, _, _ = numbers.of(token)
        assert number != UNKNOWN_TOKEN


def test_numbers_of_tokens_keep_text_and_id_together() -> None:
    numbers = TokenNumbers()
    made_up = numbers.text(b" hi")
    assert made_up < UNKNOWN_TOKEN and numbers.text(b" hi") == made_up
    assert numbers.known(5, b"a") == 5 and numbers.known(5, b"a") == 5
    other = numbers.known(5, b"b")
    assert other < UNKNOWN_TOKEN and other != made_up
    assert dict(numbers.take_new()) == {made_up: b" hi", 5: b"a", other: b"b"} and numbers.take_new() == ()
