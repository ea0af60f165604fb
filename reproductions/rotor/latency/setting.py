"""The latency figure's flows, timetable and bounds. Pure."""

from __future__ import annotations

from typing import Any

from reproductions.rotor.timetables import OPERA_PORTS, median_direct_ms, opera

PORT_MBPS = 5.0
"""The rate of an optical port: so low that one machine emulates all units. A full frame takes 2.4 ms."""
SLOT_MS, ABSENT_MS = 50.0, 5.0
LIT = 1 - ABSENT_MS / (OPERA_PORTS * SLOT_MS)
"""The share of a rotation's step in which a port carries light."""
ROUTINGS = ("opera", "direct", "at-once")
SIZES_KB = (30, 60, 120)
"""A link lets two packets through at once after a pause, which is no more than a tenth of these."""
FLOWS_PER_S = (8.0, 4.0, 2.0)
"""Of each of SIZES_KB, in the whole network: a twentieth of what all ports carry."""
BULK_DSCP = 8  # CS1
_HEADERS_BYTES = 66  # of Ethernet, IPv4 and TCP
_SEGMENT_BYTES = 1448


def timetable(units: int, routing: str) -> dict[str, Any]:
    """Return Opera's timetable by a routing."""
    return opera(units, SLOT_MS, ABSENT_MS, routing)


def wire_ms(size_kb: float) -> float:
    """Return how long a TCP flow's packets take at a port's rate."""
    size = 1000 * size_kb
    packets = -(-size // _SEGMENT_BYTES)
    return float((size + packets * _HEADERS_BYTES) * 8 / 1e3 / PORT_MBPS)


def bound_ms(units: int, routing: str, size_kb: float) -> float:
    """Return the least median completion time of flows of a size: their bytes at a port's rate; by direct
    circuits alone, with the time until these are lit for so long.
    """
    alone_ms = wire_ms(size_kb)
    return median_direct_ms(timetable(units, routing), units, alone_ms) if routing == "direct" else alone_ms


def traffic(units: int, bulk_mbps: float) -> list[dict[str, Any]]:
    """Return short flows of each size between all units, and the same bulk rate from each unit to all others
    together (0: none).
    """
    short = [
        {"kind": "poisson", "flows_per_s": per_s, "sizes": 1000 * size_kb}
        for size_kb, per_s in zip(SIZES_KB, FLOWS_PER_S, strict=True)
    ]
    names = [f"u{unit}h1" for unit in range(1, units + 1)]
    rate_mbps = bulk_mbps / (units - 1)
    bulk = [
        {"kind": "constant", "from": sender, "to": to, "rate_mbps": rate_mbps, "dscp": BULK_DSCP}
        for sender in names
        for to in names
        if sender != to and bulk_mbps
    ]
    return [*short, *bulk]
