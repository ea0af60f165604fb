"""Remember the jobs that ports which are down keep from their rates, from one time slot to the next. Does no
I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from testbed.ocs.circuits import Circuit
from testbed.scheduling import live
from testbed.scheduling.failed_ports import Remainder, remainder
from testbed.scheduling.model import Decision, Limits, Pair, Progress
from testbed.topology.addresses import parse_optical_port
from testbed.topology.units import UnitPair


class Shortage:
    """What running jobs have while ports are down, and what they had before."""

    def __init__(self) -> None:
        self._wanted: dict[int, float] = {}  # Gb/s that jobs had, and get back
        self._now = Remainder()
        self._refused: frozenset[str] = frozenset()
        self._kept: frozenset[Circuit] = frozenset()

    @property
    def now(self) -> Remainder:
        """What remains for the jobs in the present time slot."""
        return self._now

    @property
    def kept(self) -> frozenset[Circuit]:
        """The circuits that jobs which are cut off keep: no policy decides on them."""
        return self._kept

    def update(
        self,
        limits: Limits,
        running: Sequence[Progress],
        decision: Decision,
        circuits: Collection[Circuit],
        missing: frozenset[str],
    ) -> Remainder:
        """Set each running job's rate to what it can have without the ports that are `missing`, and return
        what remains. `circuits` are lit.

        A policy whose decision was refused with the same ports missing does not replace circuits: then jobs
        have what is lit, and no more.
        """
        for progress in running:
            progress.rate_gbps = self._wanted.get(progress.job.id, progress.rate_gbps)
        self._wanted = {progress.job.id: progress.rate_gbps for progress in running}
        lit = _counted(circuits)
        if missing and decision.rotation is None:
            self._now = remainder(limits, running, decision.ports, lit, missing == self._refused)
        else:
            self._now = Remainder()
        self._kept = frozenset(_some(circuits, self._now.reserved))
        for progress in running:
            progress.rate_gbps = self._now.rates.get(progress.job.id, progress.rate_gbps)
        return self._now

    def refuse(self, missing: frozenset[str]) -> None:
        """Note that a decision was refused while these ports were missing."""
        self._refused = missing

    def lasting(self, decision: Decision) -> Decision:
        """Return a decision that stays in force, at the rates that jobs can have."""
        rates = {job: min(gbps, self._now.rates.get(job, gbps)) for job, gbps in decision.rates.items()}
        return Decision(rates, decision.inc, decision.ports, decision.rotation)

    def decided(self, rates: Mapping[int, float]) -> None:
        """Note the rates that were decided. A job whose rate was left as low as it has to be gets its own
        back with the port.
        """
        less = {job for job, gbps in self._now.rates.items() if rates.get(job, gbps) == gbps}
        self._wanted = {job: gbps for job, gbps in self._wanted.items() if job in less}

    def loss(self, job: int, missing: Collection[str], units: Collection[int]) -> str | None:
        """Say what a job with hosts in these units lost to ports that are down; None if it lost nothing."""
        if job not in self._now.rates:
            return None
        near = [end for end in missing if parse_optical_port(end)[0] in units]
        ports = sorted(near or missing, key=parse_optical_port)
        are = f"{', '.join(ports)} {'is' if len(ports) == 1 else 'are'} down"
        gbps = self._now.rates[job]
        if not gbps:
            return f"{are}: no free port is left for its circuits; it has no rate until one is up"
        return f"{are}: it has {gbps:g} of {self._wanted[job]:g} Gb/s"


def _counted(circuits: Collection[Circuit]) -> dict[Pair, int]:
    counts: dict[UnitPair, int] = {}
    for each in circuits:
        if each.units[0] != each.units[1]:
            counts[each.units] = counts.get(each.units, 0) + 1
    return live.ports_of(counts)


def _some(circuits: Collection[Circuit], counts: Mapping[Pair, int]) -> list[Circuit]:
    wanted = live.circuits_of(counts)
    return [
        each
        for units, count in wanted.items()
        for each in sorted(each for each in circuits if each.units == units)[:count]
    ]
