"""What a recording vLLM says of itself, as a screen needs it. Pure but for the look for other ranks' sockets.

`provenance_of` is the place that says what in the records is not the server's own word.
"""

from __future__ import annotations

from itertools import combinations

from engine.attach.vllm_lines import VERSION, Cost, Header
from engine.attach.vllm_ranks import others_in_words
from engine.config import SLOT_LIMIT, ConfigError, EngineConfig
from engine.runner import ModelInfo
from engine.stream.records import Provenance


def provenance_of(header: Header, address: str) -> Provenance:
    """Whose records these are, and what in them the server does not say itself.

    Args:
        address: of its socket, beside which those of other ranks are; empty: it is a file.
    """
    engine = f"vLLM {header.vllm}".strip()
    absent = [("logprobs", "vLLM computes them for those who ask only")]
    if header.is_rank or header.data_parallel > 1:
        engine += f", data-parallel rank {header.rank}"
        absent.append(("ranks", others_in_words(address, header.rank)))
    inferred = [
        ("mask", "it follows from the query and context lengths"),
        ("slots", "a request is drawn where it entered the batch; vLLM moves it up when others end"),
        ("waiting_requests", "why one waits follows from the limits and the step"),
    ]
    if header.groups > 1:
        inferred.append(("blocks", f"the tables of one of {header.groups} groups of KV blocks"))
    if header.drafts and header.async_scheduling:
        inferred.append(("drafts", "a scheduler that is ahead is told of the accepted ones only"))
    return Provenance(
        engine=engine,
        address=address,
        inferred=tuple(inferred),
        absent=tuple(absent),
        no_modes=_no_modes(mode_of(header)),
    )


#: vLLM decides how it batches when it starts, and what it does not have at all.
_NO_MODES = {
    "static": "a slot is free the moment its request ends; it never waits for a wave",
    "continuous-padded": "its row is packed; there is no rectangle to pad",
    "continuous": "prompts are cut to its budget; start it with --no-enable-chunked-prefill",
    "chunked": "it was started with --no-enable-chunked-prefill",
}


def _no_modes(now: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, why) for name, why in _NO_MODES.items() if name != now)


def unfit(header: Header) -> str:
    """Why a stream cannot be followed, in a sentence; empty: it can."""
    if header.cbtui_vllm > VERSION:
        return f"the stream has version {header.cbtui_vllm}, this program reads up to {VERSION}"
    if header.speculative and not header.drafts:
        return "this vLLM decodes speculatively, and its recorder is too old to tell how: start it anew"
    return ""


def info_of(header: Header, tokenizer_path: str = "", *, has_chat_template: bool = False) -> ModelInfo:
    """The model it serves."""
    return ModelInfo(
        name=header.model.rstrip("/").rpartition("/")[2],
        source=header.path,
        device=header.device,
        dtype=header.dtype,
        max_model_len=header.max_model_len,
        tokenizer_path=tokenizer_path,
        has_chat_template=has_chat_template,
    )


#: The first block of vLLM's pool stands for none; it is never given out.
NULL_BLOCKS = 1


def config_of(header: Header) -> EngineConfig:
    """Its limits, as far as this engine has them, too; of those that do not fit here as few
    as possible stay at the usual."""
    limits = {
        "mode": mode_of(header),
        "max_num_seqs": min(header.max_num_seqs, SLOT_LIMIT),
        "max_num_batched_tokens": header.max_num_batched_tokens,
        "max_model_len": header.max_model_len,
        "num_blocks": header.num_blocks,
        "block_size": header.block_size,
        "prefix_caching": header.prefix_caching,
    }
    for count in range(len(limits)):
        for left_out in combinations(limits, count):
            try:
                kept = {name: value for name, value in limits.items() if name not in left_out}
                return EngineConfig(**kept)  # type: ignore[arg-type]
            except ConfigError:
                pass
    return EngineConfig()


def mode_of(header: Header) -> str:
    """Its way to batch, by this engine's name."""
    return "chunked" if header.chunked_prefill else "continuous"


def figures_of(cost: Cost) -> tuple[tuple[str, float | None], ...]:
    """What recording costs the server, as figures of a record."""
    return (
        ("recording: seconds in the server's steps", cost.hooks_s),
        ("recording: seconds of its own thread", cost.thread_s),
        ("recording: lines lost", float(cost.lost)),
        ("recording: faults", float(cost.faults)),
    )
