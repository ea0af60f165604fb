"""Access to the page: only from this machine, by its own name, by its own user; and only with the token to
change things. Pure.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

from testbed.webpage.connections import LOOPBACK

_NAMES = (LOOPBACK, "localhost")


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of who may see the page on this port, and who may change things. The token is of this process
    only.
    """

    port: int
    uids: frozenset[int]  # users who may see the page
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def refusal(self, host: str, origin: str | None, uid: int | None) -> str | None:
        """Return why a request is refused, or None.

        `host` and `origin` are its headers: a foreign page whose name was made to lead here (DNS rebinding)
        has other values. `uid` is the user who opened the connection, None to skip that check.
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
        """Return whether this is the token, in constant time."""
        return isinstance(token, str) and hmac.compare_digest(token.encode(), self.token.encode())


def lookers(own: int) -> frozenset[int]:
    """Return the users who may see the page: its user and root, as for the testbed's sockets."""
    return frozenset((own, 0))


def policy_of(hashes: Collection[str]) -> str:
    """Return the Content-Security-Policy: everything from this page's own server; of inline scripts, those
    with these hashes.
    """
    scripts = " ".join(f"'{each.strip(chr(39))}'" for each in hashes)
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'none'"
    )
