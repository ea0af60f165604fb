"""The measurements of a figure, interleaved, so that one run yields every number that a ratio needs. Runs in
the namespaces of `session`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from reproductions.aleph.micro import measure
from reproductions.aleph.micro.rig import Tools, cores
from reproductions.aleph.micro.rows import CopyRow, MicroRow, RoundTripRow, SumRow

TARGETS_GBPS = (5.0, 10.0)
LOADS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1)
QUICK_LOADS = (0.5, 0.9, 1.1)
REACHED = 0.8
"""Share of the most that a core can do: a higher rate is not measured but computed from the full-load
measurement.
"""
NEEDS_LONG = ("table2", "fig5", "fig8")
SHARES = (0.25, 0.5, 0.75)
RATES_PER_S = (1.0, 10.0, 100.0, 1e3, 1e4, 3e4, 1e5, 2e5, 4e5, 0.0)
QUICK_RATES_PER_S = (10.0, 1e3, 0.0)
TIMED = (measure.INTO_MAP, "xdp-socket", "tcp")
LEAST_PACKETS = 5


@dataclass(frozen=True, slots=True)
class Extent:
    """The length of a window in seconds, how many rounds of all measurements to run, and whether fewer points
    suffice.
    """

    seconds: float
    rounds: int
    quick: bool


def rows(figure: str, tools: Tools, long: Tools | None, asked: Extent) -> Iterator[MicroRow]:
    """Measure what a figure shows. `tools` are for packets of the asked size; `long`, where a figure needs
    it, for packets of MTU size.
    """
    plans: dict[str, Callable[[Tools, Tools, Extent], Iterator[SumRow | CopyRow | RoundTripRow]]] = {
        "table2": _table2,
        "fig5": _fig5,
        "fig6": _fig6,
        "fig7": _fig7,
        "fig8": _fig8,
    }
    for turn in range(asked.rounds):
        for row in plans[figure](tools, long or tools, asked):
            yield replace(row, round=turn)


def present() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _table2(tools: Tools, long: Tools, asked: Extent) -> Iterator[SumRow]:
    on = cores(1, present())
    for each in (tools, long):
        whole = measure.xdp_sum(each, "native", on, asked.seconds)
        yield replace(whole, target_gbps=None)
        for target in TARGETS_GBPS:
            if target < REACHED * whole.gbps_per_core:
                per_s = target * 1e9 / (32 * each.lanes)
                row = measure.xdp_sum(each, "native", on, asked.seconds, per_s)
                yield replace(row, target_gbps=target)
    for case in ("tcp", "tcp-packet", "ps"):
        whole = measure.tcp_sum(tools, case, on, asked.seconds)
        yield replace(whole, target_gbps=None)
        for target in TARGETS_GBPS:
            if case != "ps" and target < REACHED * whole.gbps_per_core:
                row = measure.tcp_sum(tools, case, on, asked.seconds, target)
                yield replace(row, target_gbps=target)


def _fig5(tools: Tools, long: Tools, asked: Extent) -> Iterator[SumRow]:
    machine = present()
    counts = sorted({1, len(machine)}) if asked.quick else range(1, len(machine) + 1)
    for count in counts:
        on = cores(count, machine)
        for each in (tools, long):
            for mode in ("native", "generic"):
                yield measure.xdp_sum(each, mode, on, asked.seconds)
        for case in ("tcp", "tcp-packet", "tcp-gro", "ps"):
            yield measure.tcp_sum(tools, case, on, asked.seconds)
    on = cores(1, machine)
    for each in (tools, long):
        for mode in ("native", "generic"):  # the profile: a program that counts and drops
            yield measure.xdp_sum(each, mode, on, asked.seconds, program="take_only")


def _fig6(tools: Tools, _: Tools, asked: Extent) -> Iterator[SumRow]:
    on = cores(1, present())
    for mode in ("native", "generic"):
        most = measure.xdp_sum(tools, mode, on, asked.seconds)
        assert most.ns_per_packet is not None
        yield replace(most, offered=None)
        for share in QUICK_LOADS if asked.quick else LOADS:
            # share of the rate at which the head's core would do nothing else
            per_s = share * 1e9 / most.ns_per_packet
            row = measure.xdp_sum(tools, mode, on, asked.seconds, per_s)
            yield replace(row, offered=share)


def _fig7(tools: Tools, _: Tools, asked: Extent) -> Iterator[RoundTripRow]:
    on = cores(1, present())
    for per_s in QUICK_RATES_PER_S if asked.quick else RATES_PER_S:
        seconds = max(asked.seconds, LEAST_PACKETS / per_s) if per_s else asked.seconds
        for case in TIMED:
            yield measure.one_packet(tools, case, on, per_s, seconds)


def _fig8(tools: Tools, long: Tools, asked: Extent) -> Iterator[CopyRow]:
    on = cores(1, present())
    shares: tuple[float, ...] = SHARES[1:2] if asked.quick else SHARES
    for each in (tools, long):
        most = measure.xdp_copies(each, on, asked.seconds)
        yield replace(most, offered=None)
        for share in shares:
            # share of the rate at which the head's core would do nothing else
            per_s = share * most.gbps_per_core * 1e9 / (32 * each.lanes * measure.RECEIVERS)
            row = measure.xdp_copies(each, on, asked.seconds, per_s)
            yield replace(row, offered=share)
    for case in ("tcp", "tcp-packet"):
        most = measure.tcp_copies(tools, case, on, asked.seconds)
        yield replace(most, offered=None)
        for share in shares:
            row = measure.tcp_copies(tools, case, on, asked.seconds, share * most.gbps_per_core)
            yield replace(row, offered=share)


def count(figure: str, asked: Extent) -> int:
    """Count the measurements that a figure makes at most, for its progress."""
    machine = len(present())
    counts = min(machine, 2) if asked.quick else machine
    each = {
        "table2": 13,  # fewer where a core cannot reach the target rates
        "fig5": 8 * counts + 4,
        "fig6": 2 + 2 * len(QUICK_LOADS if asked.quick else LOADS),
        "fig7": len(TIMED) * len(QUICK_RATES_PER_S if asked.quick else RATES_PER_S),
        "fig8": 4 * (2 if asked.quick else 1 + len(SHARES)),
    }
    return each[figure] * asked.rounds
