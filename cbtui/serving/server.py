"""A small web server: a page with a terminal in it, and for each one that is open a program of its own.

Pages, limits and who is let in are ours; the terminal (xterm.js) and the pipe between it and the program are
those of textual-serve.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from aiohttp import web
from textual_serve.server import Server

from cbtui.serving.guard import Guard

#: The page's own files and nothing else; xterm.js sets styles of its own.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: Columns or lines beyond which a window's size is no window's.
_LARGEST = 1000
#: Seconds a session's program has to end its model and itself.
_ENDING_S = 8.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Serving:
    """What to serve, to whom.

    Attributes:
        command: the program of a session, and its arguments.
        host, port: where to listen; port 0: any free one.
        guard: who is let in.
        sessions: programs at most at a time.
    """

    command: Sequence[str]
    host: str
    port: int
    guard: Guard
    sessions: int


class ScreenServer(Server):
    """The server's pages and sessions."""

    def __init__(self, serving: Serving) -> None:
        # In the shell's place: a program sees by its parent whether the server is still there.
        super().__init__(f"exec {shlex.join(serving.command)}", serving.host, serving.port, title="cbtui")
        self._serving = serving
        #: Sessions that are open.
        self._sessions: set[asyncio.Task[object]] = set()

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._let_in], client_max_size=0)
        app.add_routes(
            [
                web.get("/", self.handle_page, name="index"),
                web.get("/ws", self.handle_session, name="websocket"),
                web.get("/download/{key}", self.handle_download, name="download"),
                web.get("/own/{name}", self.handle_own),
                web.static("/static", self.statics_path, name="static"),
            ]
        )
        app.on_shutdown.append(self.on_shutdown)
        return app

    @web.middleware
    async def _let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check each request, and say in each answer what its page may do."""
        refusal = self._serving.guard.refusal(
            request.headers.get("Host"),
            request.headers.get("Origin"),
            needs_origin=request.path == "/ws",
        )
        if refusal:
            return web.Response(status=403, text=refusal + "\n")
        try:
            answer = await handler(request)
        except web.HTTPException as exc:
            answer = exc
        if not answer.prepared:
            answer.headers["Content-Security-Policy"] = POLICY
            answer.headers["X-Content-Type-Options"] = "nosniff"
            answer.headers["Referrer-Policy"] = "no-referrer"
            # Also keeps a page that was left from living on, with its session, in the browser's memory.
            answer.headers["Cache-Control"] = "no-store"
        if isinstance(answer, web.HTTPException):
            raise answer
        return answer

    @property
    def _is_full(self) -> bool:
        return len(self._sessions) >= self._serving.sessions

    async def handle_page(self, request: web.Request) -> web.StreamResponse:
        """The terminal, or the page that says that there is no room."""
        if not self._is_full:
            return web.Response(text=_own("index.html"), content_type="text/html")
        words = f"{self._serving.sessions} session{'s are' if self._serving.sessions > 1 else ' is'} open"
        text = _own("full.html").replace("{{words}}", words)
        return web.Response(status=503, text=text, content_type="text/html", headers={"Retry-After": "30"})

    async def handle_own(self, request: web.Request) -> web.StreamResponse:
        """A file of our pages."""
        kinds = {"page.js": "text/javascript", "page.css": "text/css"}
        name = request.match_info["name"]
        if name not in kinds:
            raise web.HTTPNotFound
        return web.Response(text=_own(name), content_type=kinds[name])

    async def handle_session(self, request: web.Request) -> web.StreamResponse:
        """A terminal's connection: a program begins with it and ends with it."""
        for side in ("width", "height"):
            size = request.query.get(side, "1")
            if not size.isdecimal() or not 1 <= int(size) <= _LARGEST:
                raise web.HTTPBadRequest(text=f"{side} is no window's\n")
        if self._is_full:
            raise web.HTTPServiceUnavailable(text="All sessions are taken.\n")
        session = asyncio.current_task()
        assert session is not None
        self._sessions.add(session)
        try:
            return await self.handle_websocket(request)
        finally:
            self._sessions.discard(session)

    async def on_shutdown(self, app: web.Application) -> None:
        """End every session: its program is told, and has so many seconds to end."""
        sessions = set(self._sessions)
        for session in sessions:
            session.cancel()
        if sessions:
            await asyncio.wait(sessions, timeout=_ENDING_S)


def _own(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def serve(serving: Serving, on_ready: Callable[[str], None]) -> int:
    """Serve until a signal ends it; then every session's program is ended.

    Args:
        on_ready: told the address once it can be reached.

    Returns:
        The exit status: 128 and the signal's number.

    Raises:
        OSError: nobody can listen there.
    """
    return asyncio.run(_serve(serving, on_ready))


async def _serve(serving: Serving, on_ready: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(128 + number)

    _speak_in_sentences()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    server = ScreenServer(serving)
    runner = web.AppRunner(await server._make_app(), access_log=None, shutdown_timeout=5)
    await runner.setup()
    try:
        await web.TCPSite(runner, serving.host, serving.port).start()
        host, port = runner.addresses[0][:2]
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{port}")
        return await ended
    finally:
        await runner.cleanup()


def _speak_in_sentences() -> None:
    """What goes wrong in a session is a line on standard error, not a traceback."""

    def without_traceback(record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True

    logging.basicConfig(format="cbtui: a session: %(message)s", level=logging.ERROR)
    logging.getLogger("textual-serve").addFilter(without_traceback)
