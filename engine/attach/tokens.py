"""Numbers for tokens that a server tells in part: their ids, their texts, both, or neither. Pure."""

from __future__ import annotations

from engine.attach.openai import Token
from engine.stream.records import UNKNOWN_TOKEN

Told = tuple[int, float | None, tuple[tuple[int, float], ...]]


class TokenNumbers:
    """Gives each token an id, and remembers the bytes of those that are new in the stream.

    A token whose text is known and whose id is not gets an id below `UNKNOWN_TOKEN`, one for each text.
    """

    def __init__(self) -> None:
        self._bytes: dict[int, bytes] = {}
        self._made_up: dict[bytes, int] = {}
        self._new: dict[int, bytes] = {}

    def known(self, token_id: int, data: bytes) -> int:
        """A token whose id is told. Told with other bytes than before, its text is what counts."""
        if token_id not in self._bytes:
            self._bytes[token_id] = self._new[token_id] = data
        return token_id if self._bytes[token_id] == data else self.text(data)

    def text(self, data: bytes) -> int:
        """A token of which only the text is told."""
        token_id = self._made_up.get(data)
        if token_id is None:
            token_id = self._made_up[data] = UNKNOWN_TOKEN - 1 - len(self._made_up)
            self._new[token_id] = data
        return token_id

    def of(self, token: Token) -> Told:
        """Id, log probability, and the likeliest (id, log probability)."""
        if token.token_id is None:
            number = self.text(token.data)
        else:
            number = self.known(token.token_id, token.data)
        return number, token.logprob, tuple((self.known(one, data), p) for one, data, p in token.top)

    def take_new(self) -> tuple[tuple[int, bytes], ...]:
        """Ids and bytes of those that came since the last call."""
        new, self._new = tuple(self._new.items()), {}
        return new
