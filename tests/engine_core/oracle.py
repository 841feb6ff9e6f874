"""What a request must produce alone: the fake model's rule written out without engine, cells or blocks."""

from __future__ import annotations

from zlib import crc32

from engine.fake import VOCAB_SIZE
from engine.request import SamplingParams


def solo_outputs(
    prompt: list[int], params: SamplingParams, eos: set[int] = frozenset(), max_model_len: int = 10**9
) -> list[int]:
    """Output token ids of the fake model for one prompt, up to its end."""
    tokens = list(prompt)
    outputs: list[int] = []
    while len(outputs) < params.max_tokens and len(tokens) < max_model_len:
        drawn = params.temperature > 0 and params.top_k != 1
        seed = f"{params.seed}:{len(outputs)}:{params.top_k}:{params.top_p}" if drawn else ""
        digest = crc32(repr((list(enumerate(tokens)), seed)).encode())
        token = 256 + digest % (VOCAB_SIZE - 256)
        outputs.append(token)
        tokens.append(token)
        if token in params.stop_token_ids or (token in eos and not params.ignore_eos):
            break
        if any(string in said(outputs) for string in params.stop):
            break
    return outputs


def said(outputs: list[int]) -> str:
    """The text of outputs where a token's is its number and a space."""
    return "".join(f"{token} " for token in outputs)
