"""What llama.cpp's server says beside its slots: its properties, and the tokens of a text.

Nothing of it is sure to be there.
"""

from __future__ import annotations

import httpx2
import msgspec

from engine.attach.http import ANSWER_MOST
from engine.attach.plain import harmless
from engine.attach.prompts import EncodedText
from engine.live.commands import PromptRequest


class Props:
    """What `/props` says; all of it may be missing."""

    def __init__(self, props: dict[str, object]) -> None:
        def text(name: str) -> str:
            value = props.get(name)
            return harmless(value) if isinstance(value, str) else ""

        self.model = text("model_alias") or text("model_path")
        path = text("model_path") or self.model
        self.name = path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf") or "its model"
        self.ftype = text("model_ftype")
        self.build = text("build_info") if text("build_info") != "b0-unknown" else ""
        #: Its model is unloaded until a request comes; asking for its slots would load it.
        self.is_sleeping = props.get("is_sleeping") is True
        self.num_slots = _count(props.get("total_slots"))
        settings = props.get("default_generation_settings")
        self.n_ctx = _count(settings.get("n_ctx")) if isinstance(settings, dict) else 0
        self.has_chat_template = bool(props.get("chat_template")) or not props


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


async def encode(client: httpx2.AsyncClient, request: PromptRequest) -> EncodedText:
    """The prompt's tokens, as the server's own tokenizer has them.

    Raises:
        httpx2.HTTPError: there is no answer.
        ValueError: the answer is none.
    """
    text = request.prompt or "\n\n".join(turn.content for turn in request.messages)
    if not request.chat:
        return EncodedText(await _tokenized(client, text, special=True))
    turns = [{"role": turn.role, "content": turn.content} for turn in request.messages]
    messages = turns or [{"role": "user", "content": text}]
    prompt = (await _answer(client, "/apply-template", {"messages": messages})).get("prompt")
    if not isinstance(prompt, str):
        return EncodedText()
    tokens = await _tokenized(client, prompt, special=True)
    own = await _tokenized(client, text, special=False)
    return EncodedText(tokens, max(0, len(tokens) - len(own)))


async def _answer(client: httpx2.AsyncClient, path: str, asked: dict[str, object]) -> dict[str, object]:
    """A good answer's JSON object; empty: there is none.

    Raises:
        ValueError: it is no JSON, or has no end.
    """
    body = bytearray()
    async with client.stream("POST", path, json=asked) as answer:
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > ANSWER_MOST:
                raise ValueError("an answer without end")
    if answer.status_code != 200:
        return {}
    try:
        found = msgspec.json.decode(body)
    except RecursionError:
        raise ValueError("an answer without bottom") from None
    return found if isinstance(found, dict) else {}


async def _tokenized(
    client: httpx2.AsyncClient, text: str, *, special: bool
) -> tuple[tuple[int, bytes], ...]:
    asked = {"content": text, "add_special": special, "parse_special": special, "with_pieces": True}
    tokens = (await _answer(client, "/tokenize", asked)).get("tokens")
    return tuple(_piece(one) for one in tokens) if isinstance(tokens, list) else ()


def _piece(one: object) -> tuple[int, bytes]:
    """A token of `/tokenize`: its piece is a text, or a list of bytes where it is none.

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(one, dict) or not isinstance(token_id := one.get("id"), int):
        raise ValueError("a token without id")
    piece = one.get("piece")
    if isinstance(piece, str):
        return token_id, piece.encode("utf-8", "surrogatepass")
    if isinstance(piece, list) and all(isinstance(n, int) for n in piece):
        return token_id, bytes(n & 0xFF for n in piece)
    raise ValueError("a token without text")
