"""Set the routes of all switches in the XDP programs' pinned map, and read them back.

In large fabrics the switches' tables are large. So entries that were read back are remembered, and a change
is written, and read, in one batch.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.syscall import (
    Rows,
    map_delete_rows,
    map_entries,
    map_lookup,
    map_rows,
    map_update_rows,
    records,
    u32,
)
from testbed.errors import SettingError
from testbed.ocs.routes import Rerouted
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.units import Unit
from testbed.wire.frame import mac_bytes
from testbed.wire.places import FRAMES_SHIFT, MATCHING_SHIFT, MAX_ROUTES, Frames
from testbed.wire.records import Column, columns, filled

Routes = Mapping[tuple[str, int], tuple[tuple[str, ...], str]]
_OWNER_BYTES, _WAY_BYTES = layout.ROUTE_KEY[0].itemsize, layout.ROUTE_KEY[-1].itemsize  # the first, the last
_WAYS = tuple(u32(way) for way in range(addresses.MAX_OPTICAL_PORTS_PER_UNIT))
READ_WHOLE_FROM = (
    2000  # from this many entries on, reading each takes longer than reading the largest possible map
)
_NO_NUMBER = np.uint64(1 << 63)  # larger than the number of any key
_OF_UNIT = 24  # prefix length of the routes that circuits change


@dataclass(frozen=True, slots=True, eq=False)
class RouteKeys:
    """The members of routes' keys (ROUTE_KEY)."""

    owner: Column
    ip: Column
    prefix: Column
    way: Column


@lru_cache(1 << 16)
def ip_number(ip: str) -> int:
    """Convert a dotted IPv4 address to a 32-bit number."""
    return int.from_bytes(socket.inet_aton(ip), "big")


def packed_routes(
    tables: Iterable[tuple[Dpid, Routes]], of: int = 0, staying: Collection[str] = ()
) -> dict[bytes, bytes]:
    """Encode switches' routes as map entries, in the order in which to write them; `of` (`of_matching`) says
    to which matching of a timetable they belong, and `staying` which devices' circuits were in the one before
    it as well.
    """
    entries: dict[bytes, bytes] = {}
    values: dict[tuple[str, int, str], bytes] = {}  # a fabric has far fewer values than keys
    for dpid, routes in tables:
        owner = u32(of | dpid)
        for (ip, prefix), (by, mac) in routes.items():
            network, ways = owner + _network(ip, prefix), len(by)
            # way 0 of a route, which holds the number of ways, is written last
            for way in range(ways - 1, -1, -1):
                what = (by[way], ways, mac)
                value = values.get(what)
                if value is None:
                    value = values[what] = _value(*what, by[way] in staying)
                entries[network + _WAYS[way]] = value
    return entries


@lru_cache(1 << 16)
def _network(ip: str, prefix: int) -> bytes:
    """Return the part of a key between the owner and the way."""
    key = filled(layout.ROUTE_KEY, ip=ip_number(ip), prefix=prefix)
    return key.tobytes()[_OWNER_BYTES:-_WAY_BYTES]


def of_matching(number: int, frames: Frames) -> int:
    """Return the part of a key's owner for a kind of frames in a timetable's matching, counted from 0."""
    return int(frames) << FRAMES_SHIFT | (number + 1) << MATCHING_SHIFT


def _value(device: str, ways: int, mac: str, stays: bool = False) -> bytes:
    return filled(
        layout.ROUTE,
        ifindex=socket.if_nametoindex(device) if device else 0,
        number=addresses.oxc_number_of(device),
        ways=ways,
        stays=stays,
        mac=list(mac_bytes(mac)) if mac else 0,
    ).tobytes()


def packed_changes(rerouted: Rerouted) -> tuple[Rows, Rows, Rows]:
    """Return, for rerouted units' switches, the map keys to delete; the keys to set, in the order in which to
    write them; and their values.
    """
    bundles = rerouted.bundles
    ways = np.array([len(ports) for ports in bundles])
    pairs = rerouted.units * len(bundles) + rerouted.now
    values = np.zeros((ways.max(initial=0), pairs.max(initial=-1) + 1), layout.ROUTE)
    for pair in np.flatnonzero(np.bincount(pairs)):  # far fewer than there are routes
        unit, bundle = divmod(int(pair), len(bundles))
        for way, port in enumerate(bundles[bundle]):
            device = addresses.way_device(Unit(unit), port)
            values[way, pair] = np.frombuffer(_value(device, len(bundles[bundle]), ""), layout.ROUTE)[0]
    before, now = ways[rerouted.before], ways[rerouted.now]
    gone = [np.flatnonzero((before > way) & (now <= way)) for way in range(len(_WAYS))]
    # way 0 of a route, which holds the number of ways, is written last
    new = [(way, np.flatnonzero(now > way)) for way in reversed(range(len(values)))]
    return (
        _joined(layout.ROUTE_KEY, [_keys(rerouted, rows, way) for way, rows in enumerate(gone) if len(rows)]),
        _joined(layout.ROUTE_KEY, [_keys(rerouted, rows, way) for way, rows in new]),
        _joined(layout.ROUTE, [values[way, pairs[rows]] for way, rows in new]),
    )


def _keys(rerouted: Rerouted, rows: Rows, way: int) -> Rows:
    """Return the keys of one way of some routes."""
    keys = np.zeros(len(rows), layout.ROUTE_KEY)
    of = columns(RouteKeys, keys)
    of.owner[:], of.ip[:] = rerouted.units[rows], rerouted.networks[rows]
    of.prefix[:], of.way[:] = _OF_UNIT, way
    return keys


def _joined(kind: np.dtype[Any], parts: Sequence[Rows]) -> Rows:
    """Concatenate rows in the map's byte order, which `concatenate` alone would change."""
    rows = np.empty(sum(map(len, parts)), kind)
    return np.concatenate(parts, out=rows) if parts else rows


def _rows(kind: np.dtype[Any], packed: Iterable[bytes]) -> Rows:
    return np.frombuffer(b"".join(packed), kind)


def _numbers(keys: Rows) -> Rows:
    """Return a unique number for each key of a switch's routes: 16 bits of owner, 32 of address, 3 of prefix
    and 6 of way.
    """
    of = columns(RouteKeys, keys)
    parts = ((of.owner, 41), (of.ip, 9), (of.prefix >> 3, 6), (of.way, 0))
    numbers = np.zeros(len(keys), np.uint64)
    for part, shift in parts:
        numbers |= part.astype(np.uint64) << np.uint64(shift)
    return numbers


def _owner(key: bytes) -> Dpid:
    """Return the switch of a route's key (of no timetable)."""
    return Dpid(int.from_bytes(key[:_OWNER_BYTES], sys.byteorder))


def _by_owner(entries: Mapping[bytes, bytes]) -> dict[Dpid, dict[bytes, bytes]]:
    """Group entries by switch, without those of timetables."""
    tables: dict[Dpid, dict[bytes, bytes]] = {}
    for key, value in entries.items():
        owner = _owner(key)
        if not owner >> MATCHING_SHIFT:
            tables.setdefault(owner, {})[key] = value
    return tables


def _placed(numbers: Rows, wanted: Rows) -> tuple[Rows, Rows]:
    """Return where `wanted` stand in `numbers`, and whether they do. Both are sorted, which is ten times as
    fast as searching unsorted ones.
    """
    places = np.searchsorted(numbers, wanted)
    numbers = np.append(numbers, _NO_NUMBER)
    return places, numbers[places] == wanted


class PinnedRoutes:
    """The map `routes`, without timetables' routes. Several threads may set routes of different switches at
    the same time.

    It remembers what it has read back, so that a change costs what changes, however large the table of all
    switches is. Nothing else may write these routes meanwhile.
    """

    def __init__(self, map_fd: int) -> None:
        self._map = map_fd
        self._walking = threading.Lock()
        self._held: dict[Dpid, dict[bytes, bytes]] = {}  # by switch, as read back
        self._is_walked = False
        self._changes: list[
            tuple[Rows, Rows, Rows]
        ] = []  # changes not yet in `_held`: deleted keys, set keys, values
        self._forgotten: set[Dpid] = set()

    def set(self, dpid: Dpid, routes: Routes) -> None:
        """Replace a ToR's whole table: (IPv4 address, prefix 32, 24 or 0) -> (devices to leave by: of
        parallel circuits, or a single one, "" for none; new destination MAC or "").
        """
        wanted = packed_routes([(dpid, routes)])
        held = self._held_by(dpid)
        changed = {key: value for key, value in wanted.items() if held.get(key) != value}
        keys, values = _rows(layout.ROUTE_KEY, changed), _rows(layout.ROUTE, changed.values())
        self._write((dpid,), _rows(layout.ROUTE_KEY, held.keys() - wanted.keys()), keys, values)
        self._held[dpid] = wanted

    def change(self, rerouted: Rerouted) -> None:
        """Set the changed routes in units' tables, in one batch; `rerouted` states what they were before, and
        unchanged routes are not touched.
        """
        gone, keys, values = packed_changes(rerouted)
        dpids = [addresses.tor_dpid(unit) for unit in np.unique(rerouted.units).tolist()]
        self._write(dpids, gone, keys, values)
        self._changes.append((gone, keys, values))

    def _write(self, dpids: Sequence[Dpid], gone: Rows, keys: Rows, values: Rows) -> None:
        """Set and delete entries, and read them back: each by itself, or the whole map if they are many."""
        try:
            map_update_rows(self._map, keys, values)
            map_delete_rows(self._map, gone)
            is_as_set = self._is_whole if len(keys) + len(gone) >= READ_WHOLE_FROM else self._is_each
            if not is_as_set(gone, keys, values):
                names = ", ".join(addresses.tor_name(dpid) for dpid in sorted(dpids))
                raise SettingError(f"routes of {names}: what was set and what is read back differ")
        except (OSError, SettingError):
            self._forgotten.update(dpids)
            raise

    def _is_each(self, gone: Rows, keys: Rows, values: Rows) -> bool:
        """Return whether the map has these entries, and lacks the deleted ones, by reading each."""
        size = layout.ROUTE.itemsize
        entries = {**dict.fromkeys(records(gone)), **dict(zip(records(keys), records(values), strict=True))}
        return all(map_lookup(self._map, key, size) == value for key, value in entries.items())

    def _is_whole(self, gone: Rows, keys: Rows, values: Rows) -> bool:
        """Return the same by reading the whole map."""
        held, to = map_rows(self._map, layout.ROUTE_KEY, layout.ROUTE, MAX_ROUTES)
        ours = np.flatnonzero(columns(RouteKeys, held).owner >> MATCHING_SHIFT == 0)
        numbers = _numbers(held[ours])
        order = np.argsort(numbers)
        numbers = numbers[order]
        if _placed(numbers, np.sort(_numbers(gone)))[1].any():
            return False
        wanted = _numbers(keys)
        by = np.argsort(wanted)
        places, are_held = _placed(numbers, wanted[by])
        return bool(are_held.all()) and to[ours[order[places]]].tobytes() == values[by].tobytes()

    def _held_by(self, dpid: Dpid) -> dict[bytes, bytes]:
        """Return a ToR's routes. They are read once, for all ToRs, and again for a ToR whose routes could not
        be set.
        """
        with self._walking:
            if not self._is_walked:
                self._held, self._is_walked = _by_owner(self._there()), True
                self._changes.clear()
            while self._changes:  # changes of circuits do not wait for this
                gone, keys, values = self._changes.pop(0)
                for key in records(gone):
                    self._held.setdefault(_owner(key), {}).pop(key, None)
                for key, value in zip(records(keys), records(values), strict=True):
                    self._held.setdefault(_owner(key), {})[key] = value
            if dpid in self._forgotten:
                self._held[dpid] = _by_owner(self._there()).get(dpid, {})
                self._forgotten.remove(dpid)
            return self._held.setdefault(dpid, {})

    def _there(self) -> dict[bytes, bytes]:
        return map_entries(self._map, layout.ROUTE_KEY, layout.ROUTE, MAX_ROUTES)
