"""From requests to what the tokenizer is asked, and from its answers to prompts that can enter an engine.

Owns what a request brings beside a text: a conversation, the reply whose length is its cap, or a length
alone, for which a prompt is made up here. Made-up prompts are pieces of a passage in the model's own
tokens: they read like text, and follow from the request's keys alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from engine.engine import Engine
from engine.live.commands import MadeUp, PromptRequest
from engine.live.load import passage
from engine.request import SamplingParams
from engine.runner import EncodedPrompt, PromptInput

#: Made-up prompts are strung together of pieces so long: as text to look at, and different from each other.
_PIECE_TOKENS = 16


def inputs_of(requests: Sequence[PromptRequest]) -> list[PromptInput]:
    """What to encode for requests, for `prompts_of` to read the answers of."""
    inputs = [_input(request) for request in requests if request.made_up is None]
    inputs += [PromptInput(request.reply) for request in requests if request.reply]
    if any(request.made_up is not None for request in requests):
        inputs.append(PromptInput(passage()))
    return inputs


def prompts_of(requests: Sequence[PromptRequest], encoded: Sequence[EncodedPrompt]) -> list[EncodedPrompt]:
    """Each request's prompt, in order; one that cannot be encoded carries its error."""
    answers = iter(encoded)
    prompts = [None if request.made_up else next(answers) for request in requests]
    replies = [next(answers) if request.reply else None for request in requests]
    text = next(answers, None)
    found = []
    for request, prompt, reply in zip(requests, prompts, replies, strict=True):
        if prompt is None:
            assert request.made_up is not None and text is not None
            # Its ends may be the tokenizer's marks of beginning and end, which belong into no text's middle.
            ids = text.token_ids[1:-1] or text.token_ids
            prompt = EncodedPrompt(made_up(request.made_up, ids), error=text.error)
        if reply is not None:
            prompt = msgspec.structs.replace(prompt, num_reply_tokens=len(reply.token_ids))
        found.append(prompt)
    return found


def made_up(spec: MadeUp, passage_ids: Sequence[int]) -> list[int]:
    """The tokens of a prompt that is only known by its length.

    Args:
        passage_ids: the passage's, in the model's tokens.
    """
    ids: list[int] = []
    for hash_id in spec.hash_ids:
        ids += _drawn(f"{spec.shared_key}/block {hash_id}", spec.block_tokens, passage_ids)
    if len(ids) < spec.num_tokens:
        ids += _drawn(spec.key, spec.num_tokens - len(ids), passage_ids)
    return ids[: spec.num_tokens]


def enter(
    engine: Engine,
    request: PromptRequest,
    prompt: EncodedPrompt,
    params: SamplingParams,
    *,
    arrival_s: float | None = None,
    index: int | None = None,
) -> str:
    """Enqueue an encoded request and return its id.

    Args:
        params: its sampling parameters, checked before.
        arrival_s, index: as in `Engine.add_request`.

    Raises:
        ValueError: it has no tokens, or the engine cannot take it.
    """
    text = request.prompt
    if request.made_up is not None and engine.token_bytes is not None:
        text = b"".join(map(engine.token_bytes, prompt.token_ids)).decode("utf-8", "replace")
    return engine.add_request(
        prompt.token_ids,
        msgspec.structs.replace(params, max_tokens=most_tokens(request, prompt)),
        prompt_text=text,
        label=request.label,
        num_template_tokens=prompt.num_template_tokens,
        priority=request.priority,
        arrival_s=arrival_s,
        index=index,
    )


def most_tokens(request: PromptRequest, prompt: EncodedPrompt) -> int:
    """Output tokens of a request at most."""
    return min(request.max_tokens, prompt.num_reply_tokens or request.max_tokens)


def _input(request: PromptRequest) -> PromptInput:
    if request.chat or not request.messages:
        return PromptInput(request.prompt, request.chat, request.messages)
    return PromptInput("\n\n".join(message.content for message in request.messages))


def _drawn(key: str, count: int, passage_ids: Sequence[int]) -> list[int]:
    """`count` tokens in pieces of the passage, which begins again at its end; they follow from the key."""
    draw = random.Random(key)
    ids: list[int] = []
    while len(ids) < count and passage_ids:
        start = draw.randrange(len(passage_ids))
        ids += (
            passage_ids[(start + n) % len(passage_ids)] for n in range(min(_PIECE_TOKENS, count - len(ids)))
        )
    return ids
