"""A real browser, driven over its DevTools protocol: opens pages, takes keys and clicks, tells what it sees.

A hundred lines over aiohttp (which `cbtui serve` brings) rather than Playwright, whose wheel is 47 MB and
carries a Node of its own. The protocol: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: Keys by the names pages know: code, number, and the text they type.
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Escape": ("Escape", 27, ""),
    " ": ("Space", 32, " "),
    "End": ("End", 35, ""),
    "Home": ("Home", 36, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
}
#: A browser that does nothing but what it is told.
OPTIONS = (
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--remote-debugging-port=0",
)


def find_chromium() -> str:
    """Where a Chromium is; without one the test is skipped, in CI it fails."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    reason = f"no browser on PATH ({', '.join(NAMES)}): apt-get install chromium"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Browser:
    """A headless Chromium with one page. Use as a context manager."""

    def __init__(self, *, width: int = 1360, height: int = 1100, is_dark: bool = False) -> None:
        self._profile = tempfile.mkdtemp(prefix="cbtui-chromium-")
        self._loop = asyncio.new_event_loop()
        self._number = 0
        self._scheme = "dark" if is_dark else "light"
        self._size = (width, height)
        #: What the page complained of: exceptions, and errors on its console.
        self.complaints: list[str] = []
        #: Addresses it asked for.
        self.requests: list[str] = []
        #: What came to it over WebSockets, and the size of the terminal that asked for it.
        self.received: list[bytes] = []
        self.terminal_size = (80, 24)
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [find_chromium(), *OPTIONS, *root, f"--user-data-dir={self._profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Browser:
        self._wait(self._connect())
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._wait(self._session.close())
        finally:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._loop.close()
            shutil.rmtree(self._profile, ignore_errors=True)

    def _wait(self, awaitable: Any, timeout_s: float = 60.0) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(awaitable, timeout_s))

    async def _connect(self) -> None:
        port = Path(self._profile, "DevToolsActivePort")
        while not (port.exists() and port.read_text().count("\n")):
            assert self._process.poll() is None, "the browser did not start"
            await asyncio.sleep(0.05)
        number, path = port.read_text().split("\n")[:2]
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(f"ws://127.0.0.1:{number}{path}", max_msg_size=0)
        self._target = ""
        made = await self._send("Target.createTarget", url="about:blank")
        attached = await self._send("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._target = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self._send(f"{domain}.enable")
        width, height = self._size
        await self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        await self._send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": self._scheme}]
        )

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        order = {"id": number, "method": method, "params": params}
        await self._socket.send_json(order | ({"sessionId": self._target} if self._target else {}))
        while True:
            message = json.loads((await self._socket.receive()).data)
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description") or details["text"])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Network.webSocketCreated":
                asked = parse_qs(urlsplit(params["url"]).query)
                self.terminal_size = (int(asked["width"][0]), int(asked["height"][0]))
                self.received.clear()
            case "Network.webSocketFrameReceived" if params["response"]["opcode"] == 2:
                self.received.append(base64.b64decode(params["response"]["payloadData"]))

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """An order of the protocol, and its answer."""
        return self._wait(self._send(method, **params))

    def open(self, url: str) -> None:
        """Go to an address."""
        self.send("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """What an expression is worth on the page.

        Raises:
            AssertionError: it threw.
        """
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = 30.0) -> Any:
        """The expression's value, once it is true.

        Raises:
            AssertionError: it never was.
        """
        return self.wait_until(lambda: self.js(expression), expression, timeout_s)

    def wait_until(self, look: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
        """What `look` returns, once it is true.

        Raises:
            AssertionError: it never was.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if value := look():
                return value
            time.sleep(0.05)
        raise AssertionError(f"not within {timeout_s} s: {what}; the page said {self.complaints}")

    def press(self, *keys: str) -> None:
        """Press keys, by name or by the character they type; `ctrl+q` and the like, too."""
        for key in keys:
            name = key.removeprefix("ctrl+")
            code, number, text = KEYS.get(name, ("", ord(name[-1].upper()), name))
            common: dict[str, Any] = {"key": name, "code": code, "windowsVirtualKeyCode": number}
            if key.startswith("ctrl+"):
                common, text = common | {"modifiers": 2}, ""
            self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, x: float, y: float) -> None:
        """Click at a place of the window."""
        self.point(x, y)
        for kind, buttons in (("mousePressed", 1), ("mouseReleased", 0)):
            self.send(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1
            )

    def point(self, x: float, y: float) -> None:
        """Move the mouse there."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def show(self, html: str) -> None:
        """Show this instead of the page, whose content policy would hold for it, too."""
        self.open("about:blank")
        self.wait_for("location.href === 'about:blank' && document.readyState === 'complete'")
        frame = self.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.send("Page.setDocumentContent", frameId=frame, html=html)

    def png(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
