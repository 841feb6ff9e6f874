"""The lines of the stream, and how vLLM's own objects become parts of them.

Reads those objects and changes nothing. What is copied here is copied because vLLM's workers go on with the
same lists.

Lines are JSON objects; `k` says which:

    header  `{"k":"header","cbtui_vllm":1,…}`: the server's facts (`facts_of`)
    key     everything alive: `requests` (as in `a`, with `out` their output tokens so far, `at` computed
            tokens, `table` block ids, `on` whether running), `waiting`; before step `n`, with the outputs
            of `flying` steps before it still to come
    a       a request arrived: `r` its number in this stream, `id`, `prompt` ids, its parameters
    p       the prompt of a request whose line in a keyframe left it out
    s       a step was scheduled: `n`, `t` start and `d` duration, `rows` [[r, tokens, first position]…]
            (none: those of the step before, one more token each),
            `drafts` {r: ids} of a row's last tokens that are drafts (-1: only the workers know it),
            `tables` {r: block ids} replaced, `more` {r: block ids} appended, `pre` preempted, `run`, `wait`,
            and `q` [[r, status]…], the first that wait, where that changed; `n` 0: nothing but preemptions
    o       what came of step `n`: `t` when its tokens came, `d` duration of taking them in, `out`
            [[r, [tokens]]…] or `tok`, one token for each of its rows, `rej` [[r, drafts rejected]…], `end`
            [[r, reason]…], `free` blocks,
            `order` the rows as they really lay in the batch, where that differs; `n` 0: of no step here
    f       requests ended from outside: `end`
    cost    every `COST_EVERY` steps: steps, seconds inside these hooks, processor seconds of the thread,
            lines lost and faults, all since the start
    lost    `n` lines are missing here; a keyframe follows
    fault   a fault of the recorder itself; a keyframe follows

Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any

from .stream import Line

#: Waiting requests that are named; the rest are counted.
WAITING_SHOWN = 64


def arrival_of(request: Any, number: int, now_s: float) -> Line:
    """A request as it arrives; `with_prompt` completes it."""
    params = request.sampling_params
    line: Line = {
        "k": "a",
        "t": now_s,
        "r": number,
        "id": request.request_id,
        "len": request.num_prompt_tokens,
        "max": request.max_tokens,
        "priority": request.priority,
        "_": request,
    }
    if params is not None:
        line["temperature"] = params.temperature
        line["top_p"] = params.top_p
        line["top_k"] = params.top_k
        line["seed"] = params.seed
        line["ignore_eos"] = params.ignore_eos
    return line


def with_prompt(line: Line) -> Line:
    """In the stream's thread: the prompt's ids, and in a keyframe what came after them."""
    request = line.pop("_", None)
    if request is None:
        return line
    line["prompt"] = request.prompt_token_ids or []
    if "total" in line:
        line["out"] = request.all_token_ids[request.num_prompt_tokens : line["total"]]
    return line


def finished_key(line: Line) -> Line:
    """In the stream's thread: a keyframe, its requests complete."""
    line["requests"] = [with_prompt(one) for one in line["requests"]]
    return line


def tables_whole(
    scheduler: Any, output: Any, numbers: Mapping[str, int], group: int
) -> dict[int, tuple[int, ...]]:
    """The block tables of all that are in a step.

    Args:
        numbers: of the requests, in the stream.
        group: of KV blocks.
    """
    manager = scheduler.kv_cache_manager
    return {numbers[one]: tuple(manager.get_block_ids(one)[group]) for one in output.num_scheduled_tokens}


def tables_changed(output: Any, numbers: Mapping[str, int], group: int) -> Line:
    """`tables` and `more` of a step's line, where there are any. Arguments as above."""
    replaced = {numbers[new.req_id]: tuple(new.block_ids[group]) for new in output.scheduled_new_reqs}
    added = {}
    cached = output.scheduled_cached_reqs
    for request_id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
        if request_id in cached.resumed_req_ids:
            replaced[numbers[request_id]] = tuple(blocks[group]) if blocks else ()
        elif blocks and blocks[group]:
            added[numbers[request_id]] = tuple(blocks[group])
    line: Line = {}
    if replaced:
        line["tables"] = replaced
    if added:
        line["more"] = added
    return line


def first_waiting(scheduler: Any) -> Iterable[Any]:
    """The first requests that wait, in the order in which they are looked at."""
    queued = chain(getattr(scheduler, "kv_holding_waiting", ()), scheduler.waiting)
    return islice(queued, WAITING_SHOWN)


def one_token_each(outputs: list[Any], numbers: Mapping[str, int], rows: list[int]) -> list[int] | None:
    """What a step gave, where that is one token for each of its rows, in their order, and no end; most
    steps are of that kind, and there may be hundreds of rows."""
    if [numbers.get(one.request_id) for one in outputs] != rows:
        return None
    if [one for one in outputs if one.finish_reason is not None]:
        return None
    try:
        return [token for one in outputs for (token,) in (one.new_token_ids,)]
    except ValueError:
        return None


def rejected_drafts(scheduled: Any, model_output: Any, numbers: Mapping[str, int]) -> list[tuple[int, int]]:
    """How many drafts of a step were rejected, by request; looked at before vLLM takes the tokens in, for
    it cuts off those behind a request's end.

    Args:
        scheduled, model_output: what went into the model, and what came out.
        numbers: of the requests, in the stream.
    """
    rejected = []
    for request_id, drafts in scheduled.scheduled_spec_decode_tokens.items():
        place = model_output.req_id_to_index.get(request_id)
        given = 0 if place is None else len(model_output.sampled_token_ids[place])
        # One token more than the drafts accepted; none at all where the request had to give way.
        if request_id in numbers and 0 < given <= len(drafts):
            rejected.append((numbers[request_id], len(drafts) - given + 1))
    return rejected
