"""The bytes of a token id, from a `tokenizer.json` read with the light `tokenizers` package.

Token by token, not by decoding whole texts: a token may be half a character, and a screen shows each by
itself. Joined, the bytes of a text's tokens are that text's UTF-8. Three ways to write a vocabulary:

- byte-level BPE (GPT-2 and most since): each byte is one printable character, `Ġthe` is ` the`;
- SentencePiece: `▁the` is ` the`, and `<0xE2>` is a byte for which there is no piece;
- WordPiece: `##ing` goes on, anything else begins a word.

Added and special tokens stand as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes:
    """Bytes of token ids. The file is read at the first call, which takes up to a second.

    Args:
        path: a `tokenizer.json`.

    An id the tokenizer does not know (a model's vocabulary may be padded) has no bytes.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._tokenizer: Tokenizer | None = None
        self._added: dict[int, str] = {}
        self._piece_bytes: Callable[[str], bytes] = _plain
        self._known: dict[int, bytes] = {}

    def __call__(self, token_id: int) -> bytes:
        """The bytes of a token id.

        Raises:
            ValueError: the file cannot be read, said in one sentence.
        """
        found = self._known.get(token_id)
        if found is None:
            found = self._known[token_id] = self._bytes_of(token_id)
        return found

    def text(self, token_ids: list[int] | tuple[int, ...]) -> str:
        """The text of token ids; bytes that are not UTF-8 show as the replacement character."""
        return b"".join(map(self, token_ids)).decode("utf-8", "replace")

    def _bytes_of(self, token_id: int) -> bytes:
        tokenizer = self._tokenizer or self._load()
        if token_id in self._added:
            return self._added[token_id].encode("utf-8", "replace")
        piece = tokenizer.id_to_token(token_id) if token_id >= 0 else None
        return b"" if piece is None else self._piece_bytes(piece)

    def _load(self) -> Tokenizer:
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(self._path))
        except Exception as error:  # the package raises bare Exception
            raise ValueError(f"{self._path} cannot be read as a tokenizer: {error}") from None
        self._added = {i: token.content for i, token in tokenizer.get_added_tokens_decoder().items()}
        self._piece_bytes = _reader(_parts(tokenizer.decoder) or _parts(tokenizer.pre_tokenizer))
        self._tokenizer = tokenizer
        return tokenizer


def _parts(component: Any) -> list[dict[str, Any]]:
    """A decoder or pre-tokenizer as its JSON descriptions, sequences laid flat."""
    if component is None:
        return []
    return _flat(json.loads(component.__getstate__()))


def _flat(state: dict[str, Any]) -> list[dict[str, Any]]:
    inner = state.get("decoders") or state.get("pretokenizers")
    return [part for one in inner for part in _flat(one)] if inner else [state]


def _reader(parts: list[dict[str, Any]]) -> Callable[[str], bytes]:
    """How a vocabulary described so writes bytes."""
    kinds = {part.get("type") for part in parts}
    if "ByteLevel" in kinds:
        return _byte_level
    if "WordPiece" in kinds:
        return _word_piece
    replaced = dict(pair for part in parts if (pair := _replacement(part)))
    return lambda piece: _sentence_piece(piece, replaced, "ByteFallback" in kinds)


def _replacement(part: dict[str, Any]) -> tuple[str, str] | None:
    match part:
        case {"type": "Metaspace", "replacement": str(mark)}:
            return mark, " "
        case {"type": "Replace", "pattern": {"String": str(mark)}, "content": str(text)}:
            return mark, text
        case {"type": "BPEDecoder", "suffix": str(mark)}:
            return mark, " "
    return None


def _plain(piece: str) -> bytes:
    return piece.encode("utf-8", "replace")


def _sentence_piece(piece: str, replaced: dict[str, str], has_bytes: bool) -> bytes:
    if has_bytes and (found := _BYTE_PIECE.fullmatch(piece)):
        return bytes([int(found[1], 16)])
    for mark, text in replaced.items():
        piece = piece.replace(mark, text)
    return _plain(piece)


def _word_piece(piece: str) -> bytes:
    return _plain(piece[2:] if piece.startswith("##") else " " + piece)


def _byte_level(piece: str) -> bytes:
    table = _bytes_of_characters()
    if all(character in table for character in piece):
        return bytes(table[character] for character in piece)
    return _plain(piece)


@cache
def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's table, reversed: printable bytes stand for themselves, the rest for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = (byte for byte in range(256) if byte not in set(printable))
    return {chr(b): b for b in printable} | {chr(0x100 + place): b for place, b in enumerate(rest)}
