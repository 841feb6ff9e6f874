"""What llama.cpp's `/slots` says, of any version that tells lengths. Pure.

`n_prompt_tokens` is the live length of a slot, prompt and output together: the output is counted in it
from its first token on. After a request has ended it keeps the length that stays in the cache. Where the
server shifts a full context, it is less than what was fed by what was dropped.
"""

from __future__ import annotations

import msgspec

from engine.attach.seen import SlotSeen

_UNLIMITED = 1 << 30


class NotSlots(ValueError):
    """An answer that is not one of `/slots`, or lacks what a step cannot be told without; one sentence."""


class _NextToken(msgspec.Struct):
    n_decoded: int = 0
    n_remain: int = -1
    has_next_token: bool = False


class _Params(msgspec.Struct):
    n_predict: int = -1
    seed: int = -1


class _Slot(msgspec.Struct):
    id: int
    n_ctx: int = 0
    speculative: bool = False
    is_processing: bool = False
    id_task: int = -1
    n_prompt_tokens: int | None = None
    n_prompt_tokens_processed: int = 0
    n_prompt_tokens_cache: int = 0
    params: _Params = msgspec.field(default_factory=_Params)
    # A list of one since a slot may have several outputs; an object before.
    next_token: _NextToken | list[_NextToken] = msgspec.field(default_factory=_NextToken)
    prompt: str = ""
    generated: str = ""


_decoder = msgspec.json.Decoder(list[_Slot])


def read_slots(data: bytes) -> tuple[SlotSeen, ...]:
    """The slots of an answer, by number.

    Raises:
        NotSlots: it is none.
    """
    try:
        found = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise NotSlots(f"its /slots is not llama.cpp's: {exc}") from None
    slots = tuple(sorted(map(_seen, found), key=lambda one: one.slot))
    if [one.slot for one in slots] != sorted({one.slot for one in slots}) or any(s.slot < 0 for s in slots):
        raise NotSlots("its /slots numbers two slots alike")
    return slots


def _seen(one: _Slot) -> SlotSeen:
    next_token = one.next_token
    if isinstance(next_token, list):
        next_token = next_token[0] if next_token else _NextToken()
    decoded = max(0, next_token.n_decoded)
    if one.is_processing and one.n_prompt_tokens is None:
        raise NotSlots("its /slots tells no n_prompt_tokens: this llama.cpp is too old to be followed")
    length = max(0, one.n_prompt_tokens or 0)
    n_ctx = max(0, one.n_ctx)
    prompt, shifted = _prompt_length(one, length, decoded) if one.is_processing else (length, 0)
    remain, most = next_token.n_remain, one.params.n_predict
    if most < 0:
        most = decoded + remain if remain >= 0 else max(1, (n_ctx or _UNLIMITED) - prompt)
    return SlotSeen(
        slot=one.id,
        n_ctx=n_ctx,
        is_processing=one.is_processing,
        task=one.id_task,
        num_prompt=prompt,
        num_processed=max(0, one.n_prompt_tokens_processed),
        num_cached=max(0, min(one.n_prompt_tokens_cache, prompt)),
        num_decoded=decoded,
        max_tokens=max(1, most, decoded),
        num_shifted=shifted,
        was_cut=not one.is_processing and next_token.has_next_token,
        seed=one.params.seed,
        is_speculative=one.speculative,
        prompt_text=one.prompt,
        output_text=one.generated,
    )


def _prompt_length(one: _Slot, length: int, decoded: int) -> tuple[int, int]:
    """Prompt tokens of a slot that works, and how many tokens were dropped from its start since.

    A token just sampled is in `n_decoded` a moment before it is in the length, so the length alone may be
    one short; what was fed and what was cached of the prompt are settled by then.
    """
    settled = max(0, one.n_prompt_tokens_processed) + max(0, one.n_prompt_tokens_cache)
    behind = settled + decoded - length
    if decoded and behind in (0, 1):
        return settled, 0
    if decoded and settled and behind > 1:
        return settled, behind
    return max(0, length - decoded), 0
