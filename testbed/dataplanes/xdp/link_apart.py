"""The program of bpf/link_apart.c, loaded, and its map: whose job each host is.

What both sides know is in testbed/contract/links.py; attaching the program to devices is
testbed/emulation/apart.py's.
"""

from __future__ import annotations

from testbed.contract import links
from testbed.dataplanes.xdp.compiled import MapLayout
from testbed.dataplanes.xdp.layout import DEVICE
from testbed.dataplanes.xdp.link_program import LinkProgram

PROGRAM, MAPS = "link_apart", ("tenants",)
_TENANT = links.TENANT.dtype()


class ApartProgram(LinkProgram):
    """The program that keeps users' jobs apart, with a record for each host."""

    def __init__(self) -> None:
        tenants = MapLayout(MAPS[0], DEVICE, _TENANT, "testbed/contract/links.py")
        super().__init__("user", "link_apart.c", PROGRAM, tenants)
        self._dropped: dict[int, int] = {}

    def set_user(self, ifindex: int, uid: int | None) -> None:
        """Say whose job the host of an interface is; None: nobody's. What it has dropped stays counted."""
        dropped = self.dropped(ifindex) if ifindex in self._dropped else 0
        self._dropped[ifindex] = dropped
        self._set(ifindex, {"user": 0 if uid is None else uid + 1})

    def dropped(self, ifindex: int) -> int:
        """Return how many frames of a host's were on their way to one of another user's job."""
        return self._dropped[ifindex] + int(self._get(ifindex)["dropped"])
