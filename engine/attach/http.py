"""Asking a server over HTTP: what goes wrong becomes a sentence, and nothing a server says is trusted.

TLS is verified, redirects are not followed (they would carry the key elsewhere), answers are bounded.
Knows nothing of what is asked.
"""

from __future__ import annotations

import httpx2
import msgspec

from engine.attach.address import Address, Key
from engine.attach.plain import harmless
from engine.attach.source import SourceAway, SourceLocked, SourceLost

#: How long a server may take to take a connection, and to answer, seconds. A busy one answers between steps.
CONNECT_S, ANSWER_S = 3.0, 10.0
#: The longest answer that is read.
ANSWER_MOST = 1 << 24
#: Too many questions; llama.cpp's status for what is turned off.
BUSY, NOT_THERE = 429, 501
WANTS_KEY = "wants a key, or another one: set CBTUI_API_KEY, or use --ask-key"


def headers_of(key: Key) -> dict[str, str]:
    """What goes with every request."""
    return {"User-Agent": "cbtui"} | ({"Authorization": f"Bearer {key.secret}"} if key else {})


class _Error(msgspec.Struct):
    message: str = ""


class _Bad(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


class Http:
    """A connection that is kept open between questions.

    Args:
        address: of the server.
        key: sent along, if there is one.
    """

    def __init__(self, address: Address, key: Key) -> None:
        self._address = address
        self._client = httpx2.Client(
            base_url=address.url,
            headers=headers_of(key),
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            follow_redirects=False,
        )

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body.

        Raises:
            SourceLost: there is no answer, or one without end.
        """
        try:
            with self._client.stream("GET", path) as response:
                return response.status_code, self._body(response)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, RuntimeError) as exc:
            raise SourceAway(f"{self._address} does not answer: {reason(exc)}") from None

    def ask(self, path: str) -> bytes | None:
        """The body of a good answer; None: the server has no such place, or has it turned off.

        Raises:
            SourceLost: as `get`, or it wants a key, or cannot answer now (it loads its model, say).
        """
        status, body = self.get(path)
        if status in (401, 403):
            raise SourceLocked(f"{self._address} {WANTS_KEY}")
        if status == BUSY or (status >= 500 and status != NOT_THERE):
            raise SourceLost(f"{self._address} cannot answer now: {_words(status, body)}")
        return body if status == 200 else None

    def json(self, path: str) -> object:
        """A good answer's JSON; None: the server has no such place, or says something else there.

        Raises:
            SourceLost: as `ask`.
        """
        body = self.ask(path)
        try:
            return None if body is None else msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def close(self) -> None:
        """Let go of the connection; a question under way fails."""
        self._client.close()

    def _body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > ANSWER_MOST:
                raise SourceLost(f"{self._address} answers without end")
        return bytes(body)


def _words(status: int, body: bytes) -> str:
    """What a bad answer says, in its own words where it has any of the usual shape."""
    try:
        said = msgspec.json.decode(body, type=_Bad).error.message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = ""
    return f"{harmless(said)[:100]} (status {status})" if said else f"status {status}"


def reason(exc: Exception) -> str:
    """Why there was no answer, in a few words."""
    if isinstance(exc, httpx2.TimeoutException):
        return "it takes too long"
    if isinstance(exc, httpx2.RemoteProtocolError | httpx2.ReadError):
        return "it broke off"
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(exc) or type(exc).__name__
