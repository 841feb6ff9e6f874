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


def assert_told(records: Sequence[Record], answers: Iterable[Answer]) -> int:
    """Prompts, output tokens and ends are those the API told, choice by choice.

    Returns:
        How many output tokens that were.
    """
    stories = list(ledger_of(records).stories.values())
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


def assert_sound(records: Sequence[Record], block_size: int) -> None:
    """No step is missing, no context has a gap, the row is packed, no block has two owners.

    A block may be in two tables at the same place if the tokens up to its end are the same.
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
            assert (record.missed, record.step) == (0, last_step + 1) or not last_step
            last_step = record.step
            _assert_step(record, computed, tables, tokens, block_size)
        for finish in record.events.finished:
            assert tokens[finish.request_id]
        for release in record.events.released:
            computed.pop(release.request_id)
            tables.pop(release.request_id, None)
    assert not computed


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
        assert admission.request_id not in computed
        computed[admission.request_id] = admission.num_cached_tokens
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
        if not record.missed:
            assert segment.position == computed[name], (record.step, segment)
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
