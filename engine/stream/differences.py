"""Where the outputs of two runs of the same requests part, and how near the two tokens were there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.stream.ledger import Ledger
from engine.stream.records import NEAR_TIE, Record, StepRecord


class Difference(msgspec.Struct, frozen=True):
    """Where a request's outputs in two modes first part.

    Attributes:
        request: its place in the list of requests.
        mode, other: the mode compared, and the one it is compared with.
        output_index: which output token, from 0.
        step, other_step: the step that made it in each; None: there it had ended.
        token_id, other_token_id, text, other_text: the two tokens.
        gap: how far apart the two candidates' log probabilities lie, the larger of both modes' views; None
            where one of them is not among the likeliest two.
        near_tie: `gap` is below `NEAR_TIE`.
    """

    request: int
    mode: str
    other: str
    output_index: int
    step: int | None
    other_step: int | None
    token_id: int | None
    other_token_id: int | None
    text: str
    other_text: str
    gap: float | None
    near_tie: bool


Candidates = dict[tuple[str, int], dict[int, float]]


def candidates(records: Sequence[Record]) -> Candidates:
    """Log probabilities known of each sampled place: by (request id, output index), by token id."""
    known: Candidates = {}
    counts: dict[str, int] = {}
    for record in records:
        for segment in record.segments if isinstance(record, StepRecord) else ():
            index = counts.get(segment.request_id, 0) + len(segment.outputs)
            counts[segment.request_id] = index
            if segment.sampled is None:
                continue
            known[segment.request_id, index - 1] = dict(segment.top)
            if segment.logprob is not None:
                known[segment.request_id, index - 1][segment.sampled] = segment.logprob
    return known


def differences_of(
    mode: str, other: str, ledgers: Mapping[str, Ledger], tops: Mapping[str, Candidates]
) -> list[Difference]:
    """Every request whose outputs in two modes are not the same.

    Args:
        ledgers, tops: the stories and the candidates of each mode's run.
    """
    found = []
    pairs = zip(ledgers[mode].in_order, ledgers[other].in_order, strict=True)
    for place, (story, reference) in enumerate(pairs):
        ids, expected = story.output_token_ids, reference.output_token_ids
        if ids == expected:
            continue
        index = next(
            (i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b),
            min(len(ids), len(expected)),
        )
        token, other_token = _at(ids, index), _at(expected, index)
        views = [
            tops[name].get((one.request_id, index), {}) for name, one in ((mode, story), (other, reference))
        ]
        gap = _gap(views, token, other_token)
        found.append(
            Difference(
                place,
                mode,
                other,
                index,
                _at(story.token_steps, index),
                _at(reference.token_steps, index),
                token,
                other_token,
                "" if token is None else ledgers[mode].decode([token]),
                "" if other_token is None else ledgers[other].decode([other_token]),
                gap,
                gap is not None and gap < NEAR_TIE,
            )
        )
    return found


def _at(values: Sequence[int], index: int) -> int | None:
    return values[index] if index < len(values) else None


def _gap(views: Sequence[dict[int, float]], token: int | None, other: int | None) -> float | None:
    if token is None or other is None or not all(token in view and other in view for view in views):
        return None
    return max(abs(view[token] - view[other]) for view in views)
