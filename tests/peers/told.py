"""What must hold of a recorded vLLM's steps, and of them beside what its API answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.stream.ledger import Ledger, RequestStory
from engine.stream.records import Record, StepRecord
from engine.stream.soundness import Soundness
from tests.peers.vllm_server import Answer


def steps_of(records: Iterable[Record]) -> list[StepRecord]:
    return [record for record in records if isinstance(record, StepRecord)]


def ledger_of(records: Iterable[Record]) -> Ledger:
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return ledger


def assert_told(answers: Iterable[Answer], *streams: Sequence[Record]) -> int:
    """Prompts, output tokens and ends are those the API told, choice by choice.

    Args:
        streams: the records of each rank.

    Returns:
        How many output tokens that were.
    """
    stories = [story for records in streams for story in ledger_of(records).stories.values()]
    total = 0
    for answer in answers:
        found = [one for one in stories if _is_of(answer.asked.name, one)]
        told = sorted((tuple(one.output_token_ids), one.finish.reason) for one in found if one.finish)
        assert told == sorted(zip(answer.outputs, answer.reasons, strict=True)), answer.asked.name
        assert all(one.request.prompt_token_ids == answer.asked.prompt for one in found)
        total += sum(len(tokens) for tokens, _ in told)
    return total


def _is_of(name: str, story: RequestStory) -> bool:
    return f"-{name}-" in story.request_id


def assert_ends_told(answers: Iterable[Answer], records: Sequence[Record]) -> int:
    """Whoever was seen to end, in a stream followed from its middle, has all tokens the API told of a choice.

    Returns:
        How many were.
    """
    stories = [story for story in ledger_of(records).stories.values() if story.finish]
    for answer in answers:
        for story in stories:
            if _is_of(answer.asked.name, story):
                assert tuple(story.output_token_ids) in answer.outputs
                assert story.request.prompt_token_ids == answer.asked.prompt
    return len(stories)


def assert_sound(records: Sequence[Record], block_size: int, *, is_whole: bool = True) -> None:
    """No step is missing, no context has a gap, the row is packed, no block has two owners.

    A block may be in two tables at the same place if the tokens up to its end are the same.

    Args:
        is_whole: whether the stream was followed from its beginning to its end.
    """
    soundness = Soundness()
    computed: dict[str, int] = {}
    tables: dict[str, tuple[int, ...]] = {}
    tokens: dict[str, list[int]] = {}
    last_step = 0
    for record in records:
        assert not soundness.flaw(record)
        assert not record.events.errors
        for request in record.events.submitted:
            assert request.request_id not in tokens
            tokens[request.request_id] = [*request.prompt_token_ids, *request.made_before]
        if isinstance(record, StepRecord):
            assert record.missed == 0
            assert record.step == last_step + 1 or not (last_step or is_whole)
            if not (last_step or is_whole):
                first = {one.request_id: one.position for one in record.segments}
                computed |= {one.request_id: first.get(one.request_id, 0) for one in record.events.admitted}
            last_step = record.step
            _assert_step(record, computed, tables, tokens, block_size)
        for finish in record.events.finished:
            assert tokens[finish.request_id]
        for release in record.events.released:
            computed.pop(release.request_id)
            tables.pop(release.request_id, None)
    assert not (computed and is_whole)


def _assert_step(
    record: StepRecord,
    computed: dict[str, int],
    tables: dict[str, tuple[int, ...]],
    tokens: dict[str, list[int]],
    block_size: int,
) -> None:
    for gone in record.events.preempted:
        assert computed.pop(gone.request_id) == gone.lost_tokens
        tables.pop(gone.request_id)
    for admission in record.events.admitted:
        computed.setdefault(admission.request_id, admission.num_cached_tokens)
    column = key = 0
    for segment in record.segments:
        name = segment.request_id
        assert (segment.q_start, segment.kv_start) == (column, key)
        column, key = column + segment.q_len, key + segment.kv_len
        tables[name] = segment.block_ids
        assert len(set(segment.block_ids)) == len(segment.block_ids) >= -(-segment.kv_len // block_size)
        if segment.kind == "dead":
            assert segment.sampled is None
            continue
        assert segment.position == computed[name]
        assert segment.kv_len == segment.position + segment.q_len
        assert list(segment.token_ids) == tokens[name][segment.position : segment.kv_len]
        computed[name] = segment.kv_len
        if segment.sampled is not None:
            assert segment.kv_len == len(tokens[name])
            tokens[name].append(segment.sampled)
    assert record.shape == (1, column) and record.num_keys == key
    assert column == record.tokens.total <= record.max_num_batched_tokens
    assert len(record.slots) <= record.max_num_seqs
    assert {slot.request_id for slot in record.slots} == set(computed)
    _assert_owners(tables, tokens, block_size)


def _assert_owners(tables: dict[str, tuple[int, ...]], tokens: dict[str, list[int]], block_size: int) -> None:
    owners: dict[int, tuple[str, int]] = {}
    for name, table in tables.items():
        for place, block in enumerate(table):
            other, other_place = owners.setdefault(block, (name, place))
            if other != name:
                stop = (place + 1) * block_size
                assert place == other_place
                assert len(tokens[name]) >= stop and tokens[name][:stop] == tokens[other][:stop]
