"""What the scheduler asks of a model runner for one step, and what comes back.

A plan holds no indices: positions, write and read cells, segments and the mask follow from it by the
one pure function of `geometry.py`, which runners, the fake runner and the records share.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.request import SamplingParams

Layout = Literal["ragged", "padded"]
SegmentKind = Literal["prefill", "decode", "dead"]


class PlanRow(msgspec.Struct, frozen=True):
    """The tokens of one sequence in this step.

    Attributes:
        request_id: whose tokens.
        slot: its lane; rows of a plan are in slot order.
        kind: `dead` for a finished request whose slot static batching holds: it feeds its last token,
            its key and value go where `geometry.own_cell` says, and nothing is sampled.
        token_ids: the tokens fed, at least one.
        start_position: place of the first of them in its own sequence.
        kv_len: keys its last token attends to, its own included: `start_position + len(token_ids)`,
            or 1 for a dead row that gave its blocks back.
        block_ids: its block table, enough for every key that is not in a scratch cell.
        sampling: how to sample after its last token; None: do not sample.
        output_index: which output token of the request that would be, from 0.
        n_top: how many of the likeliest tokens to report beside the sampled one.
    """

    request_id: str
    slot: int
    kind: SegmentKind
    token_ids: list[int]
    start_position: int
    kv_len: int
    block_ids: list[int]
    sampling: SamplingParams | None = None
    output_index: int = 0
    n_top: int = 0


class Plan(msgspec.Struct, frozen=True):
    """One step: rows in slot order, laid out ragged (`[1, T]`) or padded (`[B, L]`)."""

    epoch: int
    arena_id: int
    step: int
    layout: Layout
    rows: list[PlanRow]


class SampledToken(msgspec.Struct, frozen=True):
    """A token chosen by the model.

    Attributes:
        token_id: the choice.
        logprob: its natural log probability under the model (temperature not applied).
        top: the likeliest (token id, logprob), best first.
    """

    token_id: int
    logprob: float
    top: list[tuple[int, float]] = []


class Reply(msgspec.Struct, frozen=True):
    """A runner's answer to a plan.

    Attributes:
        sampled: one entry a plan row, None where nothing was to be sampled.
        forward_s: seconds of the model call, taken after the device has finished.
        sample_s: seconds spent choosing tokens.
        faults: rows that failed although the step did not, by number, each with the cause in a sentence:
            nothing was sampled for them, and what stands in their cells means nothing.
    """

    epoch: int
    step: int
    forward_s: float
    sample_s: float
    sampled: list[SampledToken | None]
    faults: dict[int, str] = {}
