"""Frames that wait for their slot in a timetable; test_calendar.py judges."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from testbed.daemon.network import Network
from testbed.machine.links import LinkDelay
from testbed.topology import addresses
from testbed.topology.units import Unit

PORT = 7000
ECT = 2  # the sender reacts to marks
BULK = 8 << 2  # DSCP CS1
ROOM, MANY = 40, 180
SLOT_MS = 5
_HERE = Path(__file__).with_name("numbered.py")
_PAIRS = [
    [["u1o1", "u2o1"], ["u3o1", "u4o1"]],
    [["u1o1", "u3o1"], ["u2o1", "u4o1"]],
    [["u1o1", "u4o1"], ["u2o1", "u3o1"]],
]


def rig(packets: int = 200, **more: Any) -> str:
    """Return four units of a host and a port each, whose links have 40 Mb/s: 15 frames a slot."""
    ocs = {"circuits": _PAIRS[0], "calendar_packets": packets}
    return json.dumps({"units": [{"hosts": 1}] * 4, "optical_ports": 1, "scale": 1000, "ocs": ocs, **more})


def table(matchings: Sequence[int], slot_ms: float = SLOT_MS, guard_ms: float = 0.5) -> dict[str, Any]:
    """Return a timetable of these of `_PAIRS`."""
    return {
        "period_ms": slot_ms * len(matchings),
        "guard_ms": guard_ms,
        "matchings": [
            {"start_ms": slot_ms * place, "circuits": _PAIRS[which]} for place, which in enumerate(matchings)
        ],
    }


class Flow:
    """Numbered datagrams from one unit's host to another's."""

    def __init__(self, network: Network, a: int, b: int, idle_s: float = 5.0) -> None:
        self._network, self._a, self._b = network, a, b
        self._port = PORT + a
        self._receiver = self._started(b, "rx", self._port, idle_s)
        assert self._receiver.stdout
        assert b"listens" in self._receiver.stdout.readline()

    def send(self, count: int, gap_ms: float = 0.0, tos: int = 0) -> None:
        """Start to send."""
        self._started(self._a, "tx", f"10.0.{self._b}.1", self._port, count, gap_ms, tos)

    def came(self) -> Any:
        """Return what came, once nothing does any more."""
        assert self._receiver.stdout
        return json.loads(self._receiver.stdout.read())

    def _started(self, unit: int, *words: Any) -> Any:
        argv = [sys.executable, str(_HERE), *map(str, words)]
        return self._network.machine.fabric.popen_in(f"u{unit}h1", argv, stdout=subprocess.PIPE)


def _queues(network: Network) -> dict[str, dict[str, Any]]:
    return {
        f"{each.unit}-{each.goal}": {
            name: getattr(each, name)
            for name in ("held", "sent", "dropped", "unlit", "marked", "missed", "waiting")
        }
        for each in network.machine.calendar()
    }


def _seen(network: Network) -> dict[str, Any]:
    lost = network.ask("crossings")
    return {
        "queues": _queues(network),
        "lost": sum(each["dark"] + each["unlit"] for each in lost.values()),
        "verdicts": network.machine.verdicts(),
    }


@contextlib.contextmanager
def _scheduled(network: Network, described: dict[str, Any]) -> Iterator[None]:
    network.ask("schedule", schedule=described)
    yield
    network.ask("unschedule")


def many_matchings(network: Network) -> dict[str, Any]:
    """Do what `every_pair` does over a timetable of 512 matchings of 2 ms."""
    return every_pair(network, table([0, 1, 2] * 170 + [0, 1], slot_ms=2, guard_ms=0.2))


def every_pair(network: Network, described: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send from a unit to each other, and back, below the rate of each pair's slots."""
    with _scheduled(network, described or table([0, 1, 2])):
        flows = [Flow(network, a, b) for a, b in ((1, 2), (2, 3), (3, 1), (4, 1))]
        for flow in flows:
            flow.send(1500, 1.5)
        came = [flow.came() for flow in flows]
        seen = _seen(network)
    return {"came": [each["numbers"] for each in came], **seen}


def rotor(units: int) -> str:
    """Return so many units of a host and a port each, whose links have 40 Mb/s."""
    circuits = round_robin(units)[0]
    return json.dumps(
        {"units": [{"hosts": 1}] * units, "optical_ports": 1, "scale": 1000, "ocs": {"circuits": circuits}}
    )


def round_robin(units: int) -> list[list[list[str]]]:
    """Return matchings that join each pair of an even number of units once."""
    first, *others = range(1, units + 1)
    matchings = []
    for _ in others:
        order = [first, *others]
        pairs = [(order[place], order[-1 - place]) for place in range(units // 2)]
        matchings.append([[f"u{a}o1", f"u{b}o1"] for a, b in pairs])
        others = [others[-1], *others[:-1]]
    return matchings


def rotation(matchings: Sequence[Any], routing: str, guard_ms: float = 0.5) -> dict[str, Any]:
    """Return a timetable of these matchings, of SLOT_MS each."""
    return {
        "period_ms": SLOT_MS * len(matchings),
        "guard_ms": guard_ms,
        "routing": routing,
        "matchings": [
            {"start_ms": SLOT_MS * place, "circuits": circuits} for place, circuits in enumerate(matchings)
        ],
    }


def permutation(network: Network) -> dict[str, Any]:
    """Send from each of eight units to one other, more than the circuits between the two carry."""
    by_routing = {}
    for routing in ("direct", "vlb"):
        with _scheduled(network, rotation(round_robin(8), routing)):
            flows = [Flow(network, unit, unit % 8 + 1) for unit in range(1, 9)]
            for flow in flows:
                flow.send(4000, 0.5)
            came = [flow.came()["numbers"] for flow in flows]
            by_routing[routing] = {
                "came": [len(each) for each in came],
                "again": _again(came),
                **_seen(network),
            }
    return by_routing


def _again(came: Sequence[Sequence[int]]) -> int:
    return sum(len(each) - len(set(each)) for each in came)


def soonest(network: Network) -> dict[str, Any]:
    """Return how long frames are under way on average, in ms, between units that meet once in seven slots."""
    by_routing = {}
    for routing in ("direct", "hoho"):
        with _scheduled(network, rotation(round_robin(8), routing)):
            flow = Flow(network, 1, 5)
            flow.send(500, 3.1)
            came = flow.came()
            by_routing[routing] = {"came": came["numbers"], "mean_ms": mean(came["ms"]), **_seen(network)}
    return by_routing


def ring(units: int) -> str:
    """Return so many units of a host and two ports each."""
    circuits = _ring(units)
    return json.dumps(
        {"units": [{"hosts": 1}] * units, "optical_ports": 2, "scale": 1000, "ocs": {"circuits": circuits}}
    )


def _ring(units: int, less: Sequence[int] = ()) -> list[list[str]]:
    """Return a circle of circuits, without those that begin at units of `less`."""
    return [[f"u{unit}o2", f"u{unit % units + 1}o1"] for unit in range(1, units + 1) if unit not in less]


def bulk(network: Network) -> dict[str, Any]:
    """Over a ring that always joins all, send to the unit on the far side, with and without bulk's mark;
    a matching of its own joins the two once in a period.
    """
    across = [["u1o2", "u3o1"], ["u2o2", "u4o1"]]
    with _scheduled(network, rotation([_ring(4)] * 3 + [across], "opera")):
        quick, slow = Flow(network, 1, 3), Flow(network, 2, 4)
        quick.send(300, 2.0)
        slow.send(300, 2.0, BULK)
        came = [quick.came()["numbers"], slow.came()["numbers"]]
        return {"came": came, **_seen(network)}


def staying(network: Network) -> dict[str, Any]:
    """Send by a circuit that is in every matching, and by one that is dark for most of its slots."""
    pairs = [["u1o1", "u2o1"], ["u3o1", "u4o1"]], [["u1o1", "u2o1"]]
    with _scheduled(network, rotation(pairs, "direct", guard_ms=SLOT_MS - 0.5)):
        flows = [Flow(network, 1, 2), Flow(network, 3, 4)]
        for flow in flows:
            flow.send(2000, 0.5)
        came = [flow.came()["numbers"] for flow in flows]
        return {"came": came, **_seen(network)}


def delayed(network: Network) -> dict[str, Any]:
    """Send over links of different delays, of which one is longer than a slot and one begins meanwhile."""
    with _scheduled(network, table([0, 1, 2])):
        for link, delay_ms in (("u2o1", 2.0), ("u3o1", 12.0)):
            network.machine.by_hand.set([link], delay=LinkDelay(delay_ms))
        flows = [Flow(network, unit, unit % 4 + 1) for unit in range(1, 5)]
        for flow in flows:
            flow.send(1000, 1.5)
        network.machine.by_hand.set(["u4o1"], delay=LinkDelay(4.0, 0.5))
        came = [flow.came()["numbers"] for flow in flows]
        return {"came": came, **_seen(network)}


def full(network: Network) -> dict[str, Any]:
    """Send more at once than a queue has room for, and to a unit that no matching leads to; then end the
    timetable, long before the slot that the frames wait for.
    """
    with _scheduled(network, table([1, 0], slot_ms=30_000.0)):
        waits, never = Flow(network, 1, 2), Flow(network, 2, 3)
        waits.send(3 * ROOM, 3.0, ECT)  # slowly: nothing waits, or is marked, on the host's link
        never.send(30)
        deadline = time.monotonic() + 20
        while _arrived(network) < 3 * ROOM + 30 and time.monotonic() < deadline:
            time.sleep(0.05)
        waited = _queues(network)
    ended_s = time.monotonic()
    while _queues(network)["u1-u2"]["waiting"] and time.monotonic() < ended_s + 60:
        time.sleep(0.05)
    emptied_s = time.monotonic() - ended_s
    came = waits.came()
    marked = [number for number, ecn in zip(came["numbers"], came["ecn"], strict=True) if ecn == 3]
    found = {"waited": waited, "emptied_s": emptied_s, "came": came["numbers"], "marked": marked}
    return {**found, **_seen(network)}


def _arrived(network: Network) -> int:
    return sum(each["held"] + each["dropped"] + each["unlit"] for each in _queues(network).values())


def shared(network: Network) -> dict[str, Any]:
    """Send to three units at once, of which two are reached over one link to the core. `sent` counts the
    frames for these two from when both waited until twice ROOM were sent.
    """
    with _scheduled(network, table([0])):
        flows = [Flow(network, 1, goal) for goal in (2, 3, 4)]
        for flow in flows:
            flow.send(MANY, 0.0)
        deadline = time.monotonic() + 60
        first: list[int] = []
        sent: list[int] = []
        while time.monotonic() < deadline and sum(sent) - sum(first) < 2 * ROOM:
            queues = _queues(network)
            rows = [queues.get(f"u1-u{goal}", {"waiting": 0, "sent": 0}) for goal in (3, 4)]
            sent = [row["sent"] for row in rows]
            if not first and all(row["waiting"] for row in rows):
                first = sent
            time.sleep(0.02)
        came = [flow.came()["numbers"] for flow in flows]
    shares = [now - before for now, before in zip(sent, first, strict=True)]
    return {"sent": shares, "came": came, **_seen(network)}


def late(network: Network) -> dict[str, Any]:
    """Send frames with a pass whose slot is over, as a thread would that lost its core in between: where
    waiting frames come back (100 on), and on a link to the optical switch (200 on).
    """
    with _scheduled(network, table([0, 1, 2])):
        flow = Flow(network, 1, 2, idle_s=10.0)
        flow.send(20, 1.0)
        deadline = time.monotonic() + 20
        while _queues(network).get("u1-u2", {}).get("sent", 0) < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        before = _queues(network)["u1-u2"]
        devices = (addresses.CALENDAR_DEVICES[1], addresses.optical_device(Unit(1), 1))
        for first, device in zip((100, 200), devices, strict=True):
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
                sender.bind((device, 0))
                for number in range(first, first + 10):
                    sender.send(_late_frame(number))
        came = flow.came()["numbers"]
        seen = _seen(network)
    return {"came": came, "before": before, **seen}


def _late_frame(number: int) -> bytes:
    latest = ((time.monotonic_ns() - 1_000_000) >> 8) & 0xFFFFFFF8  # its last bits: it never came back
    source = bytes([1, 1]) + latest.to_bytes(4, sys.byteorder)
    payload = number.to_bytes(4, "big") + bytes(100)
    datagram = IP(src="10.0.1.1", dst="10.0.2.1") / UDP(sport=9999, dport=PORT + 1) / payload
    mac = ":".join(f"{byte:02x}" for byte in source)
    return bytes(Ether(src=mac, dst="02:00:0a:00:02:01") / datagram)
