"""Cases of traffic over shaped links, the figures of a window, and the judgement of them."""

from __future__ import annotations

import itertools
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from testbed.emulation.links import WireStatistics

KINDS = ("tcp", "udp", "xdp", "multicast")
FRAME_BYTES = 1514
TOLERANCE = 0.03
BUSY_IDLE = 0.10  # a core with less idle time than this may have held the link back
LEAST_QUEUED, ALWAYS_QUEUED = 0.2, 0.99


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of traffic at a rate; `both` loads the other direction at the same time."""

    kind: str
    rate_mbps: float
    both: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rate_mbps:g}" + ("-both" if self.both else "")


@dataclass(frozen=True, slots=True)
class Direction:
    """The traffic of one direction of a link in a window. `queued_share`: the share of the samples in which
    frames waited.

    `queued_mbps`: the rate between consecutive samples that both found frames waiting. There the shaper alone
    decides, whatever the sender does. 0 if there were too few such samples.
    """

    link: str
    direction: str
    measured_mbps: float
    drops: int
    queued_share: float
    queued_mbps: float


@dataclass(frozen=True, slots=True)
class Found:
    """The last try of a case."""

    case: Case
    directions: tuple[Direction, ...]
    idle_shares: tuple[float, ...]  # by core
    steal_share: float
    tries: int

    @property
    def worst_error(self) -> float:
        """Return (measured - asked) / asked of the direction with the largest error."""
        return max((self.error(way) for way in self.directions), key=abs)

    def error(self, way: Direction) -> float:
        """Return (measured - asked) / asked of a direction. If TCP in both directions is too slow, judge only
        the time while frames wait.

        Its acknowledgements wait behind the other direction's data and arrive in bursts, so that each queue
        is empty in turn: this is TCP's behaviour, not the link's.
        """
        error = way.measured_mbps / self.case.rate_mbps - 1
        if self.case.kind == "tcp" and self.case.both and error < -TOLERANCE and way.queued_mbps:
            error = way.queued_mbps / self.case.rate_mbps - 1
        return error

    @property
    def verdict(self) -> str:
        worst = max(self.directions, key=lambda way: abs(self.error(way)))
        return judged(self.worst_error, min(self.idle_shares), self.steal_share, worst.queued_share)

    def __str__(self) -> str:
        directions = ", ".join(
            f"{d.link} {d.direction} {d.measured_mbps:.2f} Mb/s, queued in {100 * d.queued_share:.0f} % of "
            f"samples "
            f"({d.queued_mbps:.2f} Mb/s there), {d.drops} drops"
            for d in self.directions
        )
        idle = " and ".join(f"{100 * share:.0f}" for share in self.idle_shares)
        machine = f"cores idle {idle} %, stolen {100 * self.steal_share:.1f} %"
        return f"{self.case.name}: {directions}; {machine}, {self.tries} tries"


def judged(error: float, least_idle_share: float, steal_share: float, queued_share: float = 0.0) -> str:
    """Return `holds`, `wrong`, or `inconclusive`: too slow, on a machine without spare CPU time. Too fast is
    always wrong.

    Too slow is wrong too if frames always waited: a core without spare time starves the sender, a process,
    before the shaper, which runs in an interrupt.
    """
    if abs(error) <= TOLERANCE:
        return "holds"
    busy = least_idle_share < BUSY_IDLE and queued_share < ALWAYS_QUEUED
    stolen = steal_share > TOLERANCE / 2
    return "inconclusive" if error < 0 and (busy or stolen) else "wrong"


def direction_of(
    link: str, direction: str, samples: list[tuple[float, dict[str, WireStatistics]]]
) -> Direction:
    def of(state: WireStatistics) -> tuple[int, int, int]:
        if direction == "ab":
            return state.bytes_ab, state.drops_ab, state.backlog_ab_bytes
        return state.bytes_ba, state.drops_ba, state.backlog_ba_bytes

    first, last = of(samples[0][1][link]), of(samples[-1][1][link])
    seconds = samples[-1][0] - samples[0][0]
    queued = statistics.fmean(of(states[link])[2] > 0 for _, states in samples)
    bits = seconds_queued = 0.0
    for (before_s, before), (after_s, after) in itertools.pairwise(samples):
        (start_bytes, _, start_queue), (end_bytes, _, end_queue) = of(before[link]), of(after[link])
        if start_queue and end_queue:
            bits, seconds_queued = bits + 8 * (end_bytes - start_bytes), seconds_queued + after_s - before_s
    queued_mbps = bits / 1e6 / seconds_queued if seconds_queued > LEAST_QUEUED * seconds else 0.0
    return Direction(
        link, direction, (last[0] - first[0]) * 8 / 1e6 / seconds, last[1] - first[1], queued, queued_mbps
    )


def processor_times() -> list[list[int]]:
    """Return each core's times from /proc/stat, in ticks."""
    lines = Path("/proc/stat").read_text().splitlines()
    return [[int(word) for word in line.split()[1:9]] for line in lines if re.match(r"cpu\d", line)]


def shares(before: list[list[int]], after: list[list[int]]) -> tuple[tuple[float, ...], float]:
    """Return each core's share of idle time, and the share of all time that the hypervisor took."""
    spent = [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]
    idle = tuple((core[3] + core[4]) / max(sum(core), 1) for core in spent)
    return idle, sum(core[7] for core in spent) / max(sum(map(sum, spent)), 1)
