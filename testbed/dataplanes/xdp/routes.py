"""The routes of all switches in the pinned map of the XDP programs, read back.

Switches' tables are large where fabrics are: what was read back is known, and a change is written, and read,
in one piece.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterable, Mapping, Set
from functools import lru_cache

import numpy as np

from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.kept import MATCHING_SHIFT
from testbed.dataplanes.xdp.syscall import map_delete_all, map_entries, map_lookup, map_update_all, u32
from testbed.errors import SettingError
from testbed.topology import addresses
from testbed.topology.addresses import Dpid

Routes = Mapping[tuple[str, int], tuple[tuple[str, ...], str]]
_OWNER_BYTES = layout.ROUTE_KEY["owner"].itemsize  # the key's first member
_WAY_BYTES = layout.ROUTE_KEY["way"].itemsize  # its last
_WAYS = tuple(u32(way) for way in range(addresses.MAX_OPTICAL_PORTS_PER_UNIT))
READ_WHOLE_FROM = 2000  # entries: one by one they take longer than the whole map at its largest


@lru_cache(1 << 16)
def ip_number(ip: str) -> int:
    """The 32-bit number of a dotted IPv4 address."""
    return int.from_bytes(socket.inet_aton(ip), "big")


def packed_routes(tables: Iterable[tuple[Dpid, Routes]], matching: int = 0) -> dict[bytes, bytes]:
    """The map's entries for switches' routes, or for those of a timetable's matching, numbered from 1, in the
    order in which they are to be written.
    """
    entries: dict[bytes, bytes] = {}
    values: dict[tuple[str, int, str], bytes] = {}  # a fabric has far fewer of them than keys
    for dpid, routes in tables:
        owner = u32(matching << MATCHING_SHIFT | dpid)
        for (ip, prefix), (by, mac) in routes.items():
            network, ways = owner + _network(ip, prefix), len(by)
            # the first way of a route, which says how many there are, comes last
            for way in range(ways - 1, -1, -1):
                what = (by[way], ways, mac)
                value = values.get(what)
                if value is None:
                    value = values[what] = _value(*what)
                entries[network + _WAYS[way]] = value
    return entries


@lru_cache(1 << 16)
def _network(ip: str, prefix: int) -> bytes:
    """Return what stands between the owner and the way in a key."""
    key = np.zeros((), layout.ROUTE_KEY)
    key["ip"], key["prefix"] = ip_number(ip), prefix
    return key.tobytes()[_OWNER_BYTES:-_WAY_BYTES]


def _value(device: str, ways: int, mac: str) -> bytes:
    value = np.zeros((), layout.ROUTE)
    value["ifindex"] = socket.if_nametoindex(device) if device else 0
    value["number"], value["ways"] = addresses.oxc_number_of(device), ways
    if mac:
        value["mac"] = np.frombuffer(bytes.fromhex(mac.replace(":", "")), np.uint8)
    return value.tobytes()


def _owner(key: bytes) -> Dpid:
    """Return the switch whose route this key is, no timetable's."""
    return Dpid(int.from_bytes(key[:_OWNER_BYTES], sys.byteorder))


def _by_owner(entries: Mapping[bytes, bytes]) -> dict[Dpid, dict[bytes, bytes]]:
    """Return the entries of each switch, those of timetables left out."""
    tables: dict[Dpid, dict[bytes, bytes]] = {}
    for key, value in entries.items():
        owner = _owner(key)
        if not owner >> MATCHING_SHIFT:
            tables.setdefault(owner, {})[key] = value
    return tables


class PinnedRoutes:
    """The map `routes`, but for those of timetables. Routes of different switches may be set by several
    threads at once.

    It knows what it has read back, so that a change costs what changes, however large the table of all
    switches is; nobody else may write them meanwhile.
    """

    def __init__(self, map_fd: int) -> None:
        self._map = map_fd
        self._walking = threading.Lock()
        self._held: dict[Dpid, dict[bytes, bytes]] = {}  # as they were read back
        self._is_walked = False
        self._changes: list[tuple[dict[bytes, bytes], dict[bytes, bytes]]] = []  # since, not in `_held` yet
        self._forgotten: set[Dpid] = set()

    def set(self, dpid: Dpid, routes: Routes) -> None:
        """Replace a ToR's whole table: (IPv4 address, prefix 32, 24 or 0) -> (devices to leave by, of
        parallel circuits, or the one, "" for nowhere; new destination MAC or "").
        """
        wanted = packed_routes([(dpid, routes)])
        held = self._held_by(dpid)
        changed = {key: value for key, value in wanted.items() if held.get(key) != value}
        self._write((dpid,), changed, held.keys() - wanted.keys())
        self._held[dpid] = wanted

    def change(self, changes: Mapping[Dpid, tuple[Routes, Routes]]) -> None:
        """Take the first of these routes of each switch away, and set the second: where a change of circuits
        changes many tables, all in one piece, and what is the same is not looked at.
        """
        gone = packed_routes((dpid, routes) for dpid, (routes, _) in changes.items())
        wanted = packed_routes((dpid, routes) for dpid, (_, routes) in changes.items())
        self._write(changes, wanted, gone.keys() - wanted.keys())
        self._changes.append((gone, wanted))

    def _write(self, dpids: Iterable[Dpid], wanted: Mapping[bytes, bytes], gone: Set[bytes]) -> None:
        """Set entries and take others away, and read them back: each, or, if they are many, the whole map."""
        try:
            map_update_all(self._map, wanted)
            map_delete_all(self._map, list(gone))
            if len(wanted) + len(gone) < READ_WHOLE_FROM:
                size = layout.ROUTE.itemsize
                read = {key: map_lookup(self._map, key, size) for key in (*wanted, *gone)}
            else:
                read = {**dict.fromkeys(gone), **self._there()}
            if any(read.get(key) != wanted.get(key) for key in (*wanted, *gone)):
                names = ", ".join(addresses.tor_name(dpid) for dpid in sorted(dpids))
                raise SettingError(f"routes of {names}: what was set and what is read back differ")
        except (OSError, SettingError):
            self._forgotten.update(dpids)
            raise

    def _held_by(self, dpid: Dpid) -> dict[bytes, bytes]:
        """Return a ToR's routes. They are read once, for all ToRs, and those of one that could not be set
        again.
        """
        with self._walking:
            if not self._is_walked:
                self._held, self._is_walked = _by_owner(self._there()), True
                self._changes.clear()
            while self._changes:  # who changes circuits does not wait for this
                gone, wanted = self._changes.pop(0)
                for key in gone:
                    self._held.setdefault(_owner(key), {}).pop(key, None)
                for key, value in wanted.items():
                    self._held.setdefault(_owner(key), {})[key] = value
            if dpid in self._forgotten:
                self._held[dpid] = _by_owner(self._there()).get(dpid, {})
                self._forgotten.remove(dpid)
            return self._held.setdefault(dpid, {})

    def _there(self) -> dict[bytes, bytes]:
        most = layout.SIZES["MAX_ROUTES"]
        return map_entries(self._map, layout.ROUTE_KEY.itemsize, layout.ROUTE.itemsize, most)
