"""The parts of a step's record that follow from what a recording vLLM scheduled. Knows no lines' order.

`segments_of` moves the requests on: what a step has fed counts as computed from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.attach.vllm_lines import Header, Output, Scheduled
from engine.attach.vllm_requests import Followed
from engine.step.plan import SegmentKind
from engine.stream.drafts import Drafts
from engine.stream.records import UNKNOWN_TOKEN, Segment, SlotRecord, TokenCounts

#: Why a request waits where nothing known explains it.
NOT_SAID = "vLLM does not say"


def row_order(scheduled: Scheduled, said: Sequence[int] | None) -> list[int]:
    """Requests as they lay in the batch: as the server said, else as it scheduled them."""
    rows = [number for number, _, _ in scheduled.rows]
    order = [number for number in said or () if number in rows]
    return order + [number for number in rows if number not in order]


def lacking(scheduled: Scheduled, header: Header, head: Followed | None) -> str:
    """What the head of the queue lacked in a step, as the limits tell; vLLM itself does not say.

    Args:
        head: of the queue, if it is known.
    """
    if scheduled.pause:
        return "paused"
    if set(scheduled.pre) - set(scheduled.reset):
        return "kv_blocks"
    if scheduled.run + scheduled.held >= (header.max_active or header.max_num_seqs):
        return "no_free_slot"
    budget = header.max_scheduled or header.max_num_batched_tokens
    left = budget - sum(count for _, count, _ in scheduled.rows)
    if left <= 0:
        return "token_budget"
    if head is None:
        return NOT_SAID
    num_tokens = len(head.tokens) - head.computed
    if not header.chunked_prefill and num_tokens > left:
        return "token_budget"
    # vLLM lets a request in when all of its prompt fits; of a prefix hit nobody tells.
    needed = -(-num_tokens // header.block_size)
    return "kv_blocks" if scheduled.free is not None and needed > scheduled.free else NOT_SAID


def rejected_in(line: Output) -> dict[int, int]:
    """How many drafts of which requests were rejected; of one that got no tokens nothing is known."""
    made = {number for number, tokens in line.out if tokens}
    return {number: count for number, count in line.rej if number in made}


def segments_of(
    order: Sequence[int],
    scheduled: Scheduled,
    requests: Mapping[int, Followed],
    made: Mapping[int, tuple[int, ...]],
    rejected: Mapping[int, int],
) -> tuple[tuple[Segment, ...], TokenCounts]:
    """The segments in the order of the row, and what its tokens were spent on.

    A request that had ended when its row went through the model is dead work.

    Args:
        made: the output tokens of each that has any.
        rejected: how many of a request's drafts were, where some were.
    """
    rows = {number: (count, start) for number, count, start in scheduled.rows}
    segments = []
    q_start = kv_start = prompt = decode = recomputed = dead = wasted = 0
    for number in order:
        request = requests[number]
        count, start = rows[number]
        stop = start + count
        tokens = made.get(number, ())
        guessed = () if request.is_over else scheduled.drafts.get(number, ())
        drafts = _drafts(guessed, tokens, rejected.get(number, 0))
        ids = request.tokens[start : stop - len(guessed)]
        ids += [UNKNOWN_TOKEN] * (count - len(guessed) - len(ids))
        # Which they were the scheduler may not know; those that were right it was told.
        ids += tokens[: drafts.used] + guessed[drafts.used :]
        is_decode = request.num_outputs and start == len(request.tokens) - 1
        kind: SegmentKind = "dead" if request.is_over else "decode" if is_decode else "prefill"
        useful = count - drafts.wasted
        again = max(0, min(start + useful, request.high_water) - start)
        new_prompt = max(0, min(start + useful, request.num_prompt) - (start + again))
        if request.is_over:
            dead += count
        else:
            recomputed, prompt = recomputed + again, prompt + new_prompt
            decode, wasted = decode + useful - again - new_prompt, wasted + drafts.wasted
        request.computed = stop - drafts.rejected
        request.high_water = max(request.high_water, request.computed)
        assert request.lane is not None
        segments.append(
            Segment(
                request.request_id,
                request.lane,
                kind,
                0,
                q_start,
                count,
                kv_start,
                stop,
                start,
                tuple(ids),
                tuple(request.table),
                max(0, request.num_prompt - stop) if kind == "prefill" else 0,
                tokens[-1] if len(tokens) > drafts.used else None,
                drafts=drafts if guessed else None,
            )
        )
        q_start, kv_start = q_start + count, kv_start + stop
    return tuple(segments), TokenCounts(prompt, decode, recomputed, dead, rejected=wasted)


def _drafts(guessed: Sequence[int], made: Sequence[int], rejected: int) -> Drafts:
    """What became of a request's drafts. It gets no tokens where it had to give way while the step ran."""
    accepted = len(guessed) - rejected if made else 0
    return Drafts(len(guessed), accepted, min(accepted, len(made)))


def slots_of(requests: Iterable[Followed]) -> tuple[SlotRecord, ...]:
    """Who is in a lane, by its number."""
    slots = [
        SlotRecord(
            request.lane,
            request.request_id,
            held=request.is_over,
            num_computed_tokens=request.computed,
            num_prompt_tokens=request.num_prompt,
            num_output_tokens=request.num_outputs,
            max_tokens=request.max_tokens,
        )
        for request in requests
        if request.lane is not None
    ]
    return tuple(sorted(slots, key=lambda slot: slot.slot))
