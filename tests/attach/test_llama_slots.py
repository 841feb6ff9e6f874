"""What `/slots` says: recorded answers of real servers in every state, both shapes, and rubbish."""

from __future__ import annotations

import json

import pytest
from fake_server import DATA
from hypothesis import given
from hypothesis import strategies as st

from engine.attach.llama_slots import NotSlots, read_slots
from engine.attach.seen import SlotSeen


def seen(name: str) -> tuple[SlotSeen, ...]:
    return read_slots((DATA / name).read_bytes())


def test_a_busy_server_tells_prompt_and_output_apart() -> None:
    found = [(one.slot, one.task, one.num_prompt, one.num_decoded, one.max_tokens) for one in seen(BUSY)]
    assert found == [(0, 56, 10, 11, 30), (1, 55, 5, 11, 50), (2, 58, 7, 6, 180)]
    assert all(one.is_processing and one.num_fed == one.num_prompt for one in seen(BUSY))
    assert seen(BUSY)[0].prompt_text == "Once upon a time in a land far away,"


BUSY = "llama_slots_busy.json"


def test_slots_never_used_and_slots_after_their_request() -> None:
    assert [(one.is_processing, one.task, one.num_prompt) for one in seen("llama_slots_idle.json")] == [
        (False, -1, 0)
    ] * 3
    after = seen("llama_slots_after.json")
    assert [one.is_processing for one in after] == [False] * 3
    assert [one.num_prompt for one in after] == [306, 51, 186], "what stays in the cache"


def test_the_older_shape_of_next_token_says_the_same() -> None:
    slots = json.loads((DATA / BUSY).read_text())
    for slot in slots:
        slot["next_token"] = slot["next_token"][0]
    assert read_slots(json.dumps(slots).encode()) == seen(BUSY)


def test_a_token_counted_a_moment_before_it_is_in_the_length_does_not_shorten_the_prompt() -> None:
    slots = json.loads((DATA / BUSY).read_text())
    for slot in slots:
        slot["n_prompt_tokens"] -= 1
    assert [one.num_prompt for one in read_slots(json.dumps(slots).encode())] == [10, 5, 7]


def test_a_shifted_context_shortens_no_prompt() -> None:
    slots = json.loads((DATA / BUSY).read_text())
    for slot in slots:
        slot["n_prompt_tokens"] -= 5
    found = read_slots(json.dumps(slots).encode())
    assert [(one.num_prompt, one.num_shifted) for one in found] == [(10, 5), (5, 5), (7, 5)]
    assert [one.num_shifted for one in seen(BUSY)] == [0, 0, 0]


def test_who_was_cut_short_is_told_from_who_came_to_an_end() -> None:
    slots = json.loads((DATA / "llama_slots_after.json").read_text())
    for has_next, slot in zip((True, False, True), slots, strict=True):
        slot["next_token"] = [{"has_next_token": has_next, "n_decoded": 0, "n_remain": -1}]
    slots[2]["is_processing"] = True
    assert [one.was_cut for one in read_slots(json.dumps(slots).encode())] == [True, False, False]


def test_a_server_too_old_to_tell_lengths_is_refused_in_a_sentence() -> None:
    slots = json.loads((DATA / BUSY).read_text())
    del slots[0]["n_prompt_tokens"]
    with pytest.raises(NotSlots, match="too old"):
        read_slots(json.dumps(slots).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"\xff", b'[{"id":0},{"id":0}]', b'[{"id":-1}]', b"[" * 100_000]
)
def test_what_is_no_answer_of_slots_is_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(NotSlots, match=r"\w+ \w+"):
        read_slots(data)


NUMBER = st.integers(-3, 1 << 40)
SLOT = st.fixed_dictionaries(
    {"id": st.integers(0, 9)},
    optional={
        "n_ctx": NUMBER,
        "is_processing": st.booleans(),
        "id_task": NUMBER,
        "n_prompt_tokens": NUMBER,
        "n_prompt_tokens_processed": NUMBER,
        "n_prompt_tokens_cache": NUMBER,
        "params": st.fixed_dictionaries({}, optional={"n_predict": NUMBER, "seed": NUMBER, "x": st.text()}),
        "next_token": st.one_of(
            st.fixed_dictionaries({}, optional={"n_decoded": NUMBER, "n_remain": NUMBER}),
            st.lists(st.fixed_dictionaries({}, optional={"n_decoded": NUMBER}), max_size=2),
        ),
        "prompt": st.text(max_size=5),
    },
)


@given(st.lists(SLOT, max_size=4))
def test_any_numbers_make_a_slot_that_adds_up_or_are_refused(slots: list[dict[str, object]]) -> None:
    try:
        found = read_slots(json.dumps(slots).encode())
    except NotSlots:
        return
    for one in found:
        assert 0 <= one.num_cached <= one.num_prompt and 0 <= one.num_fed <= one.num_prompt
        assert one.max_tokens >= max(1, one.num_decoded) and one.num_remaining >= 0


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    try:
        read_slots(data)
    except NotSlots as error:
        assert str(error)  # noqa: PT017  # either way is right
