"""Access to the page: from this machine, by its own name, as its own user; and the token without which nobody
acts. Pure but for the table of connections that the kernel has.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
CONNECTIONS = Path("/proc/net/tcp")
_NAMES = (LOOPBACK, "localhost")


@dataclass(frozen=True, slots=True)
class Access:
    """The rule of who may see the page on this port, and who may act. A token is of this process alone."""

    port: int
    uids: frozenset[int]  # who may look
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def refusal(self, host: str, origin: str | None, uid: int | None) -> str | None:
        """Return why a request is refused, None where it is not.

        `host` and `origin` are its headers: a page from elsewhere whose name was made to lead here (DNS
        rebinding) has another. `uid` is whose the connection is, None if that is not to be asked.
        """
        names = {f"{name}:{self.port}" for name in _NAMES}
        if host not in names:
            return f"host {host!r} is not this page's; accepted are {', '.join(sorted(names))}"
        if origin is not None and origin not in {f"http://{name}" for name in names}:
            return f"origin {origin!r} is another page's"
        if uid is not None and uid not in self.uids:
            return f"user id {uid} may not look at this testbed"
        return None

    def may_act(self, token: object) -> bool:
        """Return whether this is the token; how long that takes says nothing about it."""
        return isinstance(token, str) and hmac.compare_digest(token.encode(), self.token.encode())


def uid_of(peer_port: int, port: int, connections: Path = CONNECTIONS) -> int:
    """Return whose a connection over loopback is, from `peer_port` to `port`, as the kernel says; -1 where it
    has none such.
    """
    here = _hexadecimal(LOOPBACK)
    ends = f" {here}:{peer_port:04X} {here}:{port:04X} "
    _, match, fields = connections.read_text().partition(ends)  # of thousands of lines, at each connection
    return int(fields.split(maxsplit=5)[4]) if match else -1


def _hexadecimal(address: str) -> str:
    """Return an address as that table has it: the bytes in the machine's order, which is x86's."""
    return bytes(reversed([int(part) for part in address.split(".")])).hex().upper()


def lookers(own: int) -> frozenset[int]:
    """Return who may look: the user whose page it is, and root, as at the sockets of its testbed."""
    return frozenset((own, 0))


def policy_of(hashes: Collection[str]) -> str:
    """Return the Content-Security-Policy: all from this page's own server, and of scripts in the page itself
    those with these hashes.
    """
    scripts = " ".join(f"'{each.strip(chr(39))}'" for each in hashes)
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'none'"
    )
