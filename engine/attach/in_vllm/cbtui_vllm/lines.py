"""The lines of the stream, and how vLLM's own objects become parts of them.

Reads those objects and changes nothing. What is copied here is copied because vLLM's workers go on with the
same lists.

Lines are JSON objects; `k` says which:

    header  `{"k":"header","cbtui_vllm":2,…}`: the server's facts (`facts_of`)
    one     a request of the keyframe that follows: as `a`, with `out` its output tokens so far, `at` computed
            tokens, `table` block ids, `on` whether it runs
    key     a keyframe: with the lines `one` before it everything alive, before step `n`; `waiting` as `q`;
            the outputs of `flying` steps before it are still to come
    a       a request arrived: `r` its number in this stream, `id`, `prompt` ids, its parameters
    p       the prompt of a request whose line in a keyframe left it out
    c       a request whose prompt comes in chunks goes on with another: `prompt`, all of it so far (of the
            outputs before it some are kept as its part), `max`
    s       a step was scheduled: `n`, `t` start and `d` duration, `rows` [[r, tokens, first position]…]
            (none: those of the step before, one more token each),
            `drafts` {r: ids} of a row's last tokens that are drafts (-1: only the workers know it),
            `tables` {r: block ids} replaced, `more` {r: block ids} appended, `pre` preempted, `reset` those
            of them whose KV was taken away on purpose, `run`, `wait`, and `q` [[r, status]…], the first that
            wait, where that changed; where some wait, also `free` blocks then, `held` slots of requests
            whose next chunk is to come, `pause` vLLM's state, if it is paused; `n` 0: nothing but preemptions
    o       what came of step `n`: `t` when its tokens came, `d` duration of taking them in, `out`
            [[r, [tokens]]…] or `tok`, one token for each of its rows, `rej` [[r, drafts rejected]…], `end`
            [[r, reason]…], `free` blocks,
            `order` the rows as they really lay in the batch, where that differs; `n` 0: of no step here
    f       requests ended from outside: `end`
    cost    every `COST_EVERY` steps: steps, seconds inside these hooks, processor seconds of the thread,
            lines lost and faults, all since the start
    lost    `n` lines are missing here; a keyframe follows
    fault   a fault of the recorder itself; a keyframe follows
    over    nothing more will come, and why: `what`

In a table a number below 0 stands for so many places without a block: a window has left them.

Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Any

from .encoding import Line

#: Waiting requests that are named; the rest are counted.
WAITING_SHOWN = 64
#: Bytes that a line holds until it is written, about: without its numbers, and each of these.
_LINE_BYTES, _NUMBER_BYTES = 1000, 36


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
        "_": prompt_of(request),
    }
    if params is not None:
        line["temperature"] = params.temperature
        line["top_p"] = params.top_p
        line["top_k"] = params.top_k
        line["seed"] = params.seed
        line["ignore_eos"] = params.ignore_eos
    return line


def prompt_of(request: Any) -> Sequence[int]:
    """Its prompt's ids, to be read later; not the request, which may hold pictures and embeddings."""
    ids = request.prompt_token_ids or ()
    return tuple(ids) if is_session(request) else ids  # of a session vLLM goes on writing into the list


def ids_of(request: Any) -> Sequence[int]:
    """Prompt and output ids, to be read later."""
    return tuple(request.all_token_ids) if is_session(request) else request.all_token_ids


def is_session(request: Any) -> bool:
    """Whether its prompt comes in chunks, with outputs in between."""
    return bool(getattr(request, "resumable", False))


def is_alive(scheduler: Any, request_id: str) -> bool:
    """Whether the scheduler goes on with a request; also one of which a chunk has just ended."""
    request = scheduler.requests.get(request_id)
    return request is not None and not request.is_finished()


def with_prompt(line: Line) -> Line:
    """In the stream's thread: the prompt's ids, and in a keyframe what came after them."""
    ids = line.pop("_", None)
    if ids is None:
        return line
    line["prompt"] = list(ids)
    if (all_ids := line.pop("_all", None)) is not None:
        line["out"] = list(all_ids[line["len"] : line["total"]])
    return line


def lines_of_key(key: Line) -> Iterator[Line]:
    """In the stream's thread: a keyframe's lines, its requests complete."""
    for one in key.pop("requests"):
        yield with_prompt(one)
    yield key


def size_of(line: Line) -> int:
    """About how many bytes of memory a line holds until it is written."""
    numbers = 3 * len(line.get("rows", ())) + len(line.get("_", ())) + 2 * len(line.get("out", ()))
    numbers += len(line.get("tok", ()))
    for name in ("tables", "more"):
        if name in line:
            numbers += sum(map(len, line[name].values()))
    return _LINE_BYTES + _NUMBER_BYTES * numbers


def table_of(scheduler: Any, request_id: str, group: int) -> tuple[int, ...]:
    """A request's block table."""
    blocks = scheduler.kv_cache_manager.get_block_ids(request_id)[group]
    null = getattr(scheduler.kv_cache_manager.block_pool, "null_block", None)
    return tuple(blocks) if null is None else without_null(blocks, null.block_id)


def without_null(blocks: Sequence[int], null: int) -> tuple[int, ...]:
    """A table in which each run of vLLM's null block has become its length, negative."""
    if null not in blocks:
        return tuple(blocks)
    runs = [(is_null, list(run)) for is_null, run in groupby(blocks, null.__eq__)]
    return tuple(chain.from_iterable([-len(run)] if is_null else run for is_null, run in runs))


def tables_whole(
    scheduler: Any, output: Any, numbers: Mapping[str, int], group: int
) -> dict[int, tuple[int, ...]]:
    """The block tables of all that are in a step.

    Args:
        numbers: of the requests, in the stream.
        group: of KV blocks.
    """
    return {numbers[one]: table_of(scheduler, one, group) for one in output.num_scheduled_tokens}


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


def why_wait(scheduler: Any) -> Line:
    """What is known of why some wait, beside the limits in the header."""
    line: Line = {"free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks()}
    if held := getattr(scheduler, "num_waiting_for_streaming_input", 0):
        line["held"] = held
    pause = getattr(scheduler, "pause_state", None)
    if pause is not None and pause.name != "UNPAUSED":
        line["pause"] = pause.name
    return line


def status_of(request: Any, adapters: frozenset[int] | None) -> str:
    """A waiting request's state, by vLLM's name.

    Args:
        adapters: the LoRA adapters of the running requests, if there may be no more; else None.
    """
    adapter = getattr(request, "lora_request", None)
    if adapters is not None and adapter is not None and adapter.lora_int_id not in adapters:
        return "WAITING_FOR_LORA"
    return str(request.status.name)


def full_adapters(scheduler: Any) -> frozenset[int] | None:
    """The LoRA adapters in use, where they are as many as there may be at a time; else None."""
    limits = getattr(scheduler, "lora_config", None)
    if not limits:
        return None
    used = frozenset(one.lora_request.lora_int_id for one in scheduler.running if one.lora_request)
    return used if len(used) >= limits.max_loras else None
