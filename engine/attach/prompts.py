"""Prompts sent from here to a server's OpenAI route, all at once, in a thread of its own.

The source that owns them asks `news()` in its own thread and finds in each `Own` what has come so far.
Taking a prompt back closes its connection, which is how any client of these servers does it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import MappingProxyType

import httpx2
import msgspec

from engine.attach.address import Address, Key
from engine.attach.http import CONNECT_S, WANTS_KEY, headers_of, reason
from engine.attach.openai import (
    N_TOP,
    BadAnswer,
    Piece,
    Token,
    body_of,
    data_of,
    error_of,
    read_piece,
    route_of,
)
from engine.attach.plain import harmless
from engine.attach.source import OWN, Refused
from engine.live.commands import PromptRequest

#: Prompts under way at a server of unknown size at most; the others are held back here, and sent as these
#: end: a server may be others', too.
AT_ONCE = 16
#: Of a server with so many slots: so many prompts for each, that none stands empty; and at least so many.
A_SLOT, AT_LEAST = 2, 4
#: Seconds between two prompts sent together, so that they arrive in their order.
SPACING_S = 0.005
#: How long a server may be silent in the middle of an answer: a long queue is silence, too.
SILENCE_S = 3600.0
_ERROR_MOST = 1 << 16
#: The longest line of an answer.
_LINE_MOST = 1 << 22


class EncodedText(msgspec.Struct, frozen=True):
    """A prompt's token ids and bytes, where a server tells them; `num_template` of them the template's."""

    tokens: tuple[tuple[int, bytes], ...] = ()
    num_template: int = 0


@dataclass(slots=True)
class Own:
    """A prompt sent from here. Changed by the source's thread alone, in `Prompts.news`.

    Attributes:
        request_id, index, request, seed: as it was sent.
        prompt: its tokens, once they are known.
        prompt_token_ids: its ids, where the answer tells these.
        is_encoded: they are known, or never will be.
        is_held: it is held back here, because enough others are under way.
        tokens, heard_s: output so far, and when each token of it was heard.
        finish, stop_string: why the server says it ended; its own counts may follow.
        reason, over_s: why it ended, and when that was heard; empty while anything may follow.
        num_prompt, num_output, num_cached: the server's own count, at the end.
    """

    request_id: str
    index: int
    request: PromptRequest
    seed: int
    sent_s: float
    prompt: EncodedText = field(default_factory=EncodedText)
    is_encoded: bool = False
    is_held: bool = True
    prompt_token_ids: tuple[int, ...] = ()
    tokens: list[Token] = field(default_factory=list)
    heard_s: list[float] = field(default_factory=list)
    finish: str = ""
    stop_string: str = ""
    reason: str = ""
    error: str = ""
    over_s: float = 0.0
    num_prompt: int | None = None
    num_output: int | None = None
    num_cached: int | None = None

    @property
    def is_over(self) -> bool:
        return bool(self.reason)

    @property
    def end(self) -> str:
        """Why it ended, as soon as that is known; empty: it is not."""
        return self.reason or ("" if self.error else self.finish)

    @property
    def num_text_bytes(self) -> int:
        """Bytes of its text; a stop string is not in it."""
        return sum(len(token.data) for token in self.tokens)


#: Asks a server for a prompt's tokens.
Encode = Callable[[httpx2.AsyncClient, PromptRequest], Coroutine[None, None, EncodedText]]
ABORTED = "abort"
#: Whose, what (None: it is on its way now), and when it was heard.
_News = tuple[str, object, float]


def at_once_for(num_slots: int) -> int:
    """How many prompts may be under way at a server with so many slots."""
    return max(AT_LEAST, A_SLOT * num_slots)


class Prompts:
    """See the module's words.

    Args:
        address, key: of the server.
        model: as the server names it.
        encode: asks the server for a prompt's tokens; None: it tells none.
        now_s: the source's clock.
        indices: arrival numbers, shared with whoever else numbers requests.
        n_top: as `body_of` has it.
        headers: sent along with each.
        at_once: prompts under way at most.
    """

    def __init__(
        self,
        address: Address,
        key: Key,
        model: str,
        encode: Encode | None,
        now_s: Callable[[], float],
        indices: count[int],
        n_top: int = N_TOP,
        headers: Mapping[str, str] = MappingProxyType({}),
        at_once: int = AT_ONCE,
    ) -> None:
        self._address, self._key = address, key
        self.model = model
        self._encode = encode
        self._now_s = now_s
        self._indices = indices
        self._n_top = n_top
        self._headers = headers
        self._seeds = Random()
        self._news: deque[_News] = deque()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._at_once = at_once
        self._gate = asyncio.Semaphore(at_once)
        self._order = asyncio.Lock()
        self._client: httpx2.AsyncClient | None = None
        #: By request id, in the order they were sent.
        self.all: dict[str, Own] = {}

    def send(self, requests: Sequence[PromptRequest]) -> list[Own]:
        """Send prompts. Never waits.

        Raises:
            Refused: one of them cannot be sent as a text; then none is.
        """
        for request in requests:
            if request.made_up is not None:
                raise Refused("a prompt known by its length alone needs a model here; a server wants text")
        sent = []
        under_way = sum(not (own.is_over or own.is_held) for own in self.all.values())
        for number, request in enumerate(requests, under_way):
            index = next(self._indices)
            seed = request.seed if request.seed is not None else self._new_seed()
            own = Own(f"{OWN}{index}", index, request, seed, self._now_s())
            own.is_held = number >= self._at_once
            self.all[own.request_id] = own
            sent.append(own)
        loop = self._running()
        for own in sent:
            loop.call_soon_threadsafe(self._start, own.request_id, own.request, own.seed)
        return sent

    def cancel(self, request_id: str) -> None:
        """Take one back.

        Raises:
            Refused: it was not sent from here, or has ended.
        """
        own = self.all.get(request_id)
        if own is None:
            raise Refused("another client sent it: only what was sent from here can be taken back")
        if own.is_over:
            raise Refused("it has ended already")
        self._running().call_soon_threadsafe(self._stop, request_id)

    def news(self) -> bool:
        """Take in what has come since; whether anything has."""
        had = False
        while self._news:
            request_id, what, at_s = self._news.popleft()
            self._take(self.all[request_id], what, at_s)
            had = True
        return had

    def close(self) -> None:
        """Take all back and end the thread. From any thread, twice too."""
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._stop_all, loop)

    # -- in the source's thread ---------------------------------------------------------------

    def _new_seed(self) -> int:
        taken = {own.seed for own in self.all.values()}
        while (seed := self._seeds.randrange(1, 1 << 31)) in taken:
            pass
        return seed

    def _take(self, own: Own, what: object, at_s: float) -> None:
        match what:
            case None:
                own.is_held = False
            case EncodedText():
                own.prompt, own.is_encoded = what, True
            case Piece():
                own.tokens += what.tokens
                own.heard_s += [at_s] * len(what.tokens)
                own.finish = own.finish or what.finish_reason
                own.stop_string = own.stop_string or what.stop_string
                own.prompt_token_ids = own.prompt_token_ids or what.prompt_token_ids
                for name in ("num_prompt", "num_output", "num_cached"):
                    if (value := getattr(what, name)) is not None:
                        setattr(own, name, value)
                own.error = own.error or harmless(what.error)
            case str():  # why it is over, or nothing: it simply is
                own.is_encoded, own.is_held = True, False
                own.error = own.error or ("" if what == ABORTED else harmless(what))
                if not (own.error or own.finish or what == ABORTED):
                    own.error = "the server ended its answer without a reason"
                own.reason = "error" if own.error else own.finish or "abort"
                own.over_s = at_s

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise Refused("the server was let go of")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="prompts", daemon=True).start()
            return self._loop

    # -- in the thread of the connections -----------------------------------------------------

    def _start(self, request_id: str, request: PromptRequest, seed: int) -> None:
        task = asyncio.ensure_future(self._follow(request_id, request, seed))
        self._tasks[request_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(request_id, None))

    def _stop(self, request_id: str) -> None:
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()

    def _stop_all(self, loop: asyncio.AbstractEventLoop) -> None:
        async def stop() -> None:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._client is not None:
                await self._client.aclose()
            loop.stop()

        self._stopping = loop.create_task(stop())

    async def _follow(self, request_id: str, request: PromptRequest, seed: int) -> None:
        def say(what: object) -> None:
            self._news.append((request_id, what, self._now_s()))

        answer: asyncio.Future[str] | None = None
        try:
            async with self._gate:
                say(None)
                client = self._connections()
                async with self._order:
                    say(await self._encoded(client, request))
                    answer = asyncio.ensure_future(self._answer(client, request, seed, say))
                    await asyncio.wait((answer,), timeout=SPACING_S)
                say(await answer)
        except asyncio.CancelledError:
            say(ABORTED)
        except (httpx2.HTTPError, httpx2.StreamError, RuntimeError) as exc:
            say(reason(exc))
        except BadAnswer as exc:
            say(str(exc))
        finally:
            if answer is not None:
                answer.cancel()

    def _connections(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                base_url=self._address.url,
                headers={**self._headers, **headers_of(self._key)},
                timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
                limits=httpx2.Limits(max_connections=None),
                follow_redirects=False,
            )
        return self._client

    async def _encoded(self, client: httpx2.AsyncClient, request: PromptRequest) -> EncodedText:
        if self._encode is None:
            return EncodedText()
        try:
            return await self._encode(client, request)
        except (httpx2.HTTPError, ValueError):
            return EncodedText()  # it only tells more; the prompt itself says what is wrong

    async def _answer(
        self, client: httpx2.AsyncClient, request: PromptRequest, seed: int, say: Callable[[object], None]
    ) -> str:
        """Stream the answer; empty when it is over, or why there is none."""
        refusal = ""
        for plain in (False, True):
            body = body_of(request, self.model, seed, plain=plain, n_top=self._n_top)
            async with client.stream("POST", route_of(request), json=body) as response:
                if response.status_code == 200:
                    await self._pieces(response, say)
                    return ""
                refusal = refusal or await _refusal(response)
                if response.status_code not in (400, 422):
                    break  # only a server that dislikes a field may like it without
        return refusal

    async def _pieces(self, response: httpx2.Response, say: Callable[[object], None]) -> None:
        number, rest = 0, b""
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_MOST:
                raise BadAnswer("the server's answer has a line without end")
            for line in lines:
                if (data := data_of(line.decode("utf-8", "replace"))) is not None:
                    piece = read_piece(data, number)
                    number += len(piece.tokens)
                    say(piece)


async def _refusal(response: httpx2.Response) -> str:
    if response.status_code in (401, 403):
        return f"the server {WANTS_KEY}"
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _ERROR_MOST:
            break
    try:
        message = error_of(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = ""
    return f"the server says {response.status_code}: {message[:300] or 'no reason'}"


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
