"""The server as clients find it: refusals, limits, and programs that end with their pages and with it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from served import Served


def asked(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of an answer."""

    async def ask() -> tuple[int, str, dict[str, str]]:
        async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as answer:
            return answer.status, await answer.text(), dict(answer.headers)

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def served() -> Any:
    with Served() as server:
        yield server


@pytest.mark.parametrize("path", ["/", "/ws", "/own/page.js", "/static/js/textual.js", "/download/x"])
def test_no_path_is_given_to_other_names_or_sites(served: Served, path: str) -> None:
    status, text, _ = asked(served.url + path, Host="evil.example:8000")
    assert status == 403 and "Host" in text
    status, text, _ = asked(served.url + path, Origin="http://evil.example")
    assert status == 403 and "Origin" in text
    assert served.programs() == []


def test_its_pages_may_load_their_own_files_only(served: Served) -> None:
    status, text, headers = asked(served.url)
    assert status == 200 and "https://" not in text and "http://" not in text
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert headers["X-Content-Type-Options"] == "nosniff"
    for path in ("/static/", "/static/../server.py", "/own/..%2fserver.py", "/own/index.html", "/nowhere"):
        assert asked(served.url + path)[0] in (403, 404)


@pytest.mark.parametrize("size", ["width=0", "height=100000", "width=-5", "width=x", "width=1e3"])
def test_no_session_of_an_impossible_size(served: Served, size: str) -> None:
    status, _, _ = asked(f"{served.url}/ws?{size}", Origin=served.url)
    assert status == 400 and served.programs() == []


def test_a_full_server_says_so_and_ends_what_it_began() -> None:
    """Two sessions are taken; a third is told; one that leaves makes room; a signal ends the rest."""

    async def read(socket: aiohttp.ClientWebSocketResponse) -> None:
        async for _ in socket:
            pass

    async def visit(server: Served) -> None:
        async with aiohttp.ClientSession(headers={"Origin": server.url}) as client:
            first = await client.ws_connect(f"{server.url}/ws?width=100&height=30")
            second = await client.ws_connect(f"{server.url}/ws?width=100&height=30")
            for socket in (first, second):
                assert (await socket.receive()).type == aiohttp.WSMsgType.BINARY
            async with client.get(server.url) as answer:
                text = await answer.text()
                assert answer.status == 503 and "2 sessions are open" in text and "--sessions" in text
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(f"{server.url}/ws?width=100&height=30")
            assert refused.value.status == 503
            server.wait_for_programs(2)
            await first.close()
            server.wait_for_programs(1)
            async with client.get(server.url) as answer:
                assert answer.status == 200
            # Rubbish ends the session that sent it, and no other.
            third = await client.ws_connect(f"{server.url}/ws?width=100&height=30")
            server.wait_for_programs(2)
            await third.send_str("{not json")
            server.wait_for_programs(1)
            [left] = server.programs()
            reading = asyncio.create_task(read(second))
            assert await asyncio.to_thread(server.end) == 128 + signal.SIGTERM
            await reading
            with pytest.raises(ProcessLookupError):
                os.kill(left, 0)

    with Served() as server:
        asyncio.run(visit(server))


def test_programs_of_a_killed_server_end() -> None:
    async def visit(server: Served) -> int:
        async with aiohttp.ClientSession(headers={"Origin": server.url}) as client:
            socket = await client.ws_connect(f"{server.url}/ws?width=100&height=30")
            while b"Slots" not in (await socket.receive(timeout=20)).data:
                pass
            [program] = server.programs()
            server.end(signal.SIGKILL)
            return program

    with Served() as server:
        program = asyncio.run(visit(server))
    deadline = time.monotonic() + 20
    while Path(f"/proc/{program}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{program}").exists()


def test_a_port_that_is_taken_is_one_sentence(served: Served, cbtui: Any) -> None:
    port = served.url.rpartition(":")[2]
    ended = cbtui("serve", "--port", port)
    assert ended.code == 2 and ended.err.startswith(f"cbtui: cannot listen on 127.0.0.1 port {port}: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "Say --allow-remote if that is meant"),
        (["--host", "box.example.org"], "can be reached from other machines"),
        (["--slots", "x"], "'--slots'"),
        (["--slotz", "3"], "--slotz"),
        (["--speed", "no"], "--speed must be a number"),
        (["--slots", "0"], "0"),
        (["nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["-"], "a page has no standard input"),
        (["--record", "a.trace"], "--record writes one file"),
        (["--sessions", "0"], "'--sessions'"),
    ],
)
def test_what_cannot_be_served_is_said_before_it_is(cbtui: Any, arguments: list[str], words: str) -> None:
    ended = cbtui("serve", "--port", "0", *arguments)
    assert ended.code == 2 and words in ended.err and ended.err.count("\n") == 1


def test_without_its_packages_it_says_which(cbtui: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    monkeypatch.delitem(sys.modules, "cbtui.serving.server", raising=False)
    ended = cbtui("serve")
    assert ended.code == 2 and "pip install textual-serve aiohttp" in ended.err
