"""The program of bpf/link_apart.c, loaded, and its map: the user whose job each host belongs to.

testbed/wire/links.py has the record that both sides share; testbed/emulation/user_isolation.py attaches the
program to devices.
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
    """The program that isolates users' jobs, with a record for each host."""

    def __init__(self) -> None:
        tenants = MapLayout(MAPS[0], DEVICE, _TENANT, "testbed/wire/links.py")
        super().__init__("user", "link_apart.c", PROGRAM, tenants)
        self._users: dict[int, int] = {}
        self._dropped: Counter[int] = Counter()  # counted before its record was rewritten

    def set_user(self, ifindex: int, uid: int | None) -> None:
        """Set the user of the host with this interface; None: no user."""
        user = 0 if uid is None else uid + 1
        if self._users.get(ifindex) == user:
            return
        if ifindex in self._users:
            self._dropped[ifindex] += int(self._get(ifindex)["dropped"])
        self._set(ifindex, {"user": user})
        self._users[ifindex] = user

    def dropped(self, ifindex: int) -> int:
        """Return how many of a host's frames were dropped on their way to another user's job."""
        return self._dropped[ifindex] + int(self._get(ifindex)["dropped"])
