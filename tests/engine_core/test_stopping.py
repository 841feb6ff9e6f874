"""Stop strings: found across tokens, in bytes; the text is cut before them, the ids stay."""

from __future__ import annotations

import pytest
from desk import Table
from hypothesis import given
from hypothesis import strategies as st
from oracle import said, solo_outputs

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import Request, RequestStatus, SamplingParams
from engine.scheduling.modes import MODES
from engine.scheduling.stopping import StopCheck
from engine.stream.ledger import Ledger

PROMPT = [1, 2, 3]


def stopped(pieces: list[bytes], stop: tuple[str, ...]) -> tuple[int, Request]:
    """After how many tokens a request with these tokens' bytes ends, and the request."""
    request = Request("r0", 0, PROMPT, SamplingParams(max_tokens=1000, stop=stop))
    check = StopCheck((), lambda token: pieces[token])
    for token in range(len(pieces)):
        request.output_token_ids.append(token)
        if check(request, 10**6) is not None:
            return token + 1, request
    return 0, request


@pytest.mark.parametrize(
    ("pieces", "stop", "after", "kept"),
    [
        ([b"ab", b"cd", b"ef"], ("cd",), 2, 2),
        ([b"ab", b"cd", b"ef"], ("bc",), 2, 1),
        ([b"a", b"b", b"c", b"d"], ("abcd",), 4, 0),
        ([b"ab", b"", b"cd"], ("bcd",), 3, 1),
        ([b"one END two", b"x"], ("END",), 1, 4),
        ([b"xx", b"yEN", b"D"], ("END", "y"), 2, 2),
        ([b"aaab", b"b"], ("ab",), 1, 2),
        ([b"\xe2\x82", b"\xac", b"x"], ("€",), 2, 0),
        ([b"E", b"N", b"EN", b"D"], ("END",), 4, 2),
    ],
)
def test_a_string_is_found_wherever_it_begins_and_ends(
    pieces: list[bytes], stop: tuple[str, ...], after: int, kept: int
) -> None:
    count, request = stopped(pieces, stop)
    assert (count, request.num_text_bytes) == (after, kept)
    assert request.stop_string in stop


@given(
    st.lists(st.binary(max_size=4).map(lambda b: bytes(97 + x % 3 for x in b)), max_size=20),
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_it_is_found_in_the_first_token_that_completes_it_as_in_the_whole_text(
    pieces: list[bytes], stop: list[str]
) -> None:
    count, request = stopped(pieces, tuple(stop))
    texts = [b"".join(pieces[: n + 1]) for n in range(len(pieces))]
    expected = next((n for n, text in enumerate(texts) if any(s.encode() in text for s in stop)), None)
    assert count == (0 if expected is None else expected + 1)
    if expected is not None:
        places = [texts[expected].find(s.encode()) for s in stop]
        assert request.num_text_bytes == min(place for place in places if place >= 0)


@pytest.mark.parametrize("mode", MODES)
def test_the_request_ends_there_in_every_mode_and_its_text_is_cut(mode: str) -> None:
    alone = solo_outputs(PROMPT, SamplingParams(max_tokens=12))
    text = said(alone)
    stop = text[18:21]
    table = Table(mode=mode)
    request = table.ask(PROMPT, 12, stop=(stop,))
    ledger = Ledger()
    for record in table.run():
        ledger.apply(record)
    story = ledger[request.request_id]
    assert request.status is RequestStatus.FINISHED_STOPPED
    assert request.output_token_ids == alone[: request.num_output_tokens]
    assert story.finish is not None and story.finish.reason == "stop" and story.finish.stop_string == stop
    assert ledger.output_text(story) == text[: text.find(stop)]
    assert ledger.decode(story.output_token_ids) == said(request.output_token_ids)
    assert len(story.output_token_ids) == request.num_output_tokens


def test_a_string_begun_before_a_preemption_is_completed_after_it() -> None:
    alone = solo_outputs([4, 5, 6, 7], SamplingParams(max_tokens=8))
    table = Table(block_size=2, num_blocks=8, max_num_seqs=2)
    table.ask([1, 2, 3, 9], 8)
    victim = table.ask([4, 5, 6, 7], 8, stop=(said(alone)[2:26],))
    table.run()
    assert victim.num_preemptions and victim.output_token_ids == alone[:7]


def test_end_of_sequence_and_stop_ids_come_before_strings_and_strings_before_length() -> None:
    alone = solo_outputs(PROMPT, SamplingParams(max_tokens=3))
    table = Table()
    text = f"{alone[2]} "
    both = table.ask(PROMPT, 3, stop=(text,), stop_token_ids=(alone[2],))
    string = table.ask(PROMPT, 3, stop=(text,))
    table.run()
    assert [r.stop_string for r in (both, string)] == ["", text]
    assert {r.status for r in (both, string)} == {RequestStatus.FINISHED_STOPPED}


def test_without_the_text_of_tokens_stop_strings_are_refused_in_words() -> None:
    runner = FakeRunner()
    engine = Engine(EngineConfig(), runner, runner.info)
    with pytest.raises(ValueError, match="stop strings need the text of tokens"):
        engine.add_request(PROMPT, SamplingParams(stop=("x",)))


def test_as_many_likeliest_tokens_are_recorded_as_the_request_asked_for() -> None:
    table = Table()
    table.ask(PROMPT, 2, n_logprobs=5), table.ask(PROMPT, 2)
    assert [len(s.top) for r in table.run() for s in r.segments] == [5, 0, 5, 0]
