"""How prompts sent to a vLLM ended, where its stream says of a stop string what it says of a cancel."""

from __future__ import annotations

import pytest

from engine.attach.openai import Token, read_piece
from engine.attach.own_in_stream import ANSWER_S, OwnInStream
from engine.attach.prompts import Own
from engine.live.commands import PromptRequest
from engine.stream.records import STOP_OR_ABORT, Events, Finish, QuietRecord, Record, RequestRecord


def own(seed: int = 7, index: int = 0) -> Own:
    return Own(f"own-{index}", index, PromptRequest(prompt="p", max_tokens=9), seed, 0.0)


def arrives(request_id: str, seed: int = 7) -> QuietRecord:
    request = RequestRecord(request_id, 0, (1,), "", 9, 0.0, seed=seed)
    return QuietRecord(0, 0.0, Events(submitted=(request,)))


def ends(request_id: str, reason: str = STOP_OR_ABORT) -> QuietRecord:
    return QuietRecord(0, 0.0, Events(finished=(Finish(request_id, reason, 0, 3, 0.0),)))


def ended(records: list[Record]) -> list[Finish]:
    return [finish for record in records for finish in record.events.finished]


def test_a_stop_string_is_told_as_one_once_the_answer_has_said_so() -> None:
    one, mine = OwnInStream(), own()
    one.sent([mine])
    one.add([arrives("r0"), ends("r0"), ends("other")], 0.0)
    assert one.get("r0") is mine and not one.unseen
    assert one.take(0.1) == [arrives("r0")], "what comes after it waits, too: records keep their order"
    mine.tokens, mine.finish, mine.stop_string = [Token(1, b"One."), Token(2, b" Two")], "stop", "."
    first, second = ended(one.take(0.1))
    assert (first.reason, first.stop_string, first.num_text_bytes) == ("stop", ".", 8)
    assert (second.request_id, second.reason) == ("other", STOP_OR_ABORT), "of others nobody knows"
    assert one.get("r0") is None


@pytest.mark.parametrize(
    ("reason", "finish", "error", "told"),
    [("abort", "", "", "abort"), ("error", "", "it broke off", "abort"), ("", "stop", "", "stop")],
)
def test_what_was_taken_back_is_told_as_cancelled_and_what_stopped_as_stopped(
    reason: str, finish: str, error: str, told: str
) -> None:
    one, mine = OwnInStream(), own()
    mine.reason, mine.finish, mine.error = reason, finish, error
    one.sent([mine])
    one.add([arrives("r0"), ends("r0")], 0.0)
    (end,) = ended(one.take(0.0))
    assert (end.reason, end.error) == (told, error)


def test_an_answer_is_not_awaited_for_ever_and_other_ends_need_none() -> None:
    one = OwnInStream()
    one.sent([own(), own(8, 1)])
    one.add([arrives("r0"), arrives("r1", 8), ends("r1", "length"), ends("r0")], 0.0)
    assert [end.reason for end in ended(one.take(ANSWER_S))] == ["length"]
    assert [end.reason for end in ended(one.take(ANSWER_S * 1.1))] == [STOP_OR_ABORT]


def test_prompts_of_one_seed_are_told_apart_by_their_order() -> None:
    one, first, second = OwnInStream(), own(), own(index=1)
    one.sent([first, second])
    assert one.unseen == [first, second]
    one.add([arrives("r0"), arrives("r1")], 0.0)
    assert one.get("r0") is first and one.get("r1") is second


def test_what_is_refused_is_given_out_once() -> None:
    one, mine = OwnInStream(), own()
    one.sent([mine])
    assert one.take_refused() == []
    mine.error, mine.reason = "the server says 400", "error"
    assert one.take_refused() == [mine] and one.take_refused() == [] and not one.unseen


def test_the_stop_string_is_read_from_an_answer_and_a_stop_token_is_none() -> None:
    for reason, string in (('"."', "."), ("2", ""), ("null", "")):
        choice = f'{{"text": "", "finish_reason": "stop", "stop_reason": {reason}}}'
        piece = read_piece(f'{{"choices": [{choice}]}}', 1)
        assert (piece.finish_reason, piece.stop_string) == ("stop", string)
