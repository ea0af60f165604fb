"""The program of bpf/link_apart.c, loaded, and its map: whose job each host is.

What both sides know is in testbed/wire/links.py; attaching the program to devices is
testbed/emulation/user_isolation.py's.
"""

from __future__ import annotations

from collections import Counter

from testbed.dataplanes.xdp.compiled import MapLayout
from testbed.dataplanes.xdp.layout import DEVICE
from testbed.dataplanes.xdp.link_program import LinkProgram
from testbed.wire import links

PROGRAM, MAPS = "link_apart", ("tenants",)
_TENANT = links.TENANT.dtype()


class ApartProgram(LinkProgram):
    """The program that keeps users' jobs apart, with a record for each host."""

    def __init__(self) -> None:
        tenants = MapLayout(MAPS[0], DEVICE, _TENANT, "testbed/wire/links.py")
        super().__init__("user", "link_apart.c", PROGRAM, tenants)
        self._users: dict[int, int] = {}
        self._dropped: Counter[int] = Counter()  # before its record was made anew

    def set_user(self, ifindex: int, uid: int | None) -> None:
        """Say whose job the host of an interface is; None: nobody's."""
        user = 0 if uid is None else uid + 1
        if self._users.get(ifindex) == user:
            return
        if ifindex in self._users:
            self._dropped[ifindex] += int(self._get(ifindex)["dropped"])
        self._set(ifindex, {"user": user})
        self._users[ifindex] = user

    def dropped(self, ifindex: int) -> int:
        """Return how many frames of a host's were on their way to one of another user's job."""
        return self._dropped[ifindex] + int(self._get(ifindex)["dropped"])
