"""Where a server is, and what may be said of it: checks an address and keeps keys out of sight. Pure but
for the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

#: Environment variables a key is taken from, the first that is set.
KEY_VARIABLES = ("CBTUI_API_KEY", "OPENAI_API_KEY")
_UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address, checked; one of `url` and `socket` is set.

    Attributes:
        url: scheme, host, port and path, without a slash at the end.
        socket: a Unix socket's path.
    """

    url: str = ""
    socket: Path | None = None

    @property
    def hint(self) -> str:
        """What may be wrong with it where nobody answers, as the end of a sentence; empty: nothing plain."""
        if self.socket:
            return ""
        parts = urlsplit(self.url)
        if parts.port is None:
            port = 443 if parts.scheme == "https" else 80
            return f"no port is named, which means {port} (llama.cpp listens on 8080, vLLM on 8000)"
        if parts.scheme == "https":
            return "if it speaks plain http, begin the address with http://"
        return ""

    def __str__(self) -> str:
        return f"{_UNIX}{self.socket}" if self.socket else self.url


@dataclass(frozen=True, slots=True)
class Key:
    """A credential; printing it, or anything it is part of, shows nothing of it."""

    secret: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.secret)


def read_address(text: str) -> Address:
    """An address as somebody typed it: `host:port`, a URL, or `unix:PATH`.

    Raises:
        ValueError: it is none, or carries what must not be typed here; said in one sentence, which repeats
            no credentials.
    """
    text = text.strip()
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX).removeprefix("//")
        if not path:
            raise ValueError("unix: needs the path of a socket behind it")
        return Address(socket=Path(os.path.expanduser(path)))
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
    except ValueError:
        raise ValueError("the address has a [ or ] without an IPv6 address in it") from None
    if "@" in parts.netloc:
        raise ValueError(
            "no credentials in the address, where others see them: set CBTUI_API_KEY, or use --ask-key"
        )
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"an address begins with http://, https:// or unix:, not {parts.scheme}://")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port of the address is no number from 0 to 65535") from None
    if not parts.hostname or not (parts.hostname + text).isprintable() or " " in text:
        raise ValueError("the address has no host: try 127.0.0.1:8080, or http://host:port")
    if parts.query or parts.fragment:
        raise ValueError("the address ends with its path: nothing from ? or # on")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None else f"{host}:{port}"
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(url=f"{parts.scheme}://{netloc}{path}")


def key_of(environment: Mapping[str, str] = os.environ) -> Key:
    """The key the environment has, if any."""
    return Key(next((environment[name] for name in KEY_VARIABLES if environment.get(name)), ""))
