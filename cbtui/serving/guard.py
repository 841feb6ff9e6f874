"""Who may talk to the server: decided by the Host and Origin a request names. Pure.

A page of any site that a browser has open may send requests to a server on the same machine, under that
server's address (refused by Origin) or under a name of its own that it has pointed there (DNS rebinding,
refused by Host).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address to listen on reaches this machine only. A name other than localhost may not."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets requests in or says why not.

    Attributes:
        names: host names a browser may use for this server, without a port.
        takes_addresses: whether any IP address will do, too: a name that was pointed here is none.
    """

    names: frozenset[str]
    takes_addresses: bool

    def refusal(self, host: str | None, origin: str | None, *, needs_origin: bool) -> str:
        """Why a request is refused, in a sentence; empty: it is not.

        Args:
            host: its Host header.
            origin: its Origin header; browsers send it with whatever one site does to another, and always
                when they open a WebSocket (`needs_origin`).
        """
        if not host or not self._is_ours(host):
            return "This server does not go by that name (Host)."
        if origin is None:
            return "Only a page of this server may do that (no Origin)." if needs_origin else ""
        if origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return "Only a page of this server may do that (Origin)."
        return ""

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return self.takes_addresses


def guard_for(host: str, names: Iterable[str] = ()) -> Guard:
    """The guard of a server that listens on `host`, and goes by these `names` besides."""
    own = {name.lower() for name in names}
    if is_loopback(host):
        return Guard(frozenset({*LOOPBACK_NAMES, host.lower(), *own}), takes_addresses=False)
    return Guard(frozenset({*LOOPBACK_NAMES, host.lower(), *own}), takes_addresses=True)
