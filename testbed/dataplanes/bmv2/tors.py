"""The BMv2 switches of a running testbed: started, watched, and started again when they end. What such a
switch had summed is lost.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.aggregation.admission import Places
from testbed.client import rpc
from testbed.dataplanes.bmv2.process import binary, ended_words
from testbed.dataplanes.bmv2.program import compiled
from testbed.dataplanes.bmv2.switch import Bmv2Switch
from testbed.dataplanes.tors import Progress, Restart
from testbed.dataplanes.xdp.places import Cells
from testbed.emulation.links import set_offloads
from testbed.emulation.netlink import RouteSocket, set_merging
from testbed.errors import TestbedError
from testbed.topology import addresses
from testbed.topology.model import Topology, UnitSpec
from testbed.topology.units import Unit

ENGINE = "bmv2"
RESTARTS, RESTARTS_WITHIN_S = 5, 60.0  # more than so many in so long: it does not help
PROBE_S = 2.0
_ANSWER_S = 10.0  # the controller asks the switch in its turn
_MERGE_NOTHING = 1


def program_of(topology: Topology) -> Path | None:
    """Return what the topology's switches run; None if it has none. HostError or RequestError if it or
    `simple_switch` is not here.
    """
    if not topology.units_with(ENGINE):
        return None
    binary()
    return compiled(topology.bmv2.layout, topology.mtu)


def require(topology: Topology) -> None:
    """Raise what a topology with such switches lacks on this host (`program_of`)."""
    program_of(topology)


class Tors:
    """All of them, by unit."""

    def __init__(self, topology: Topology, log: Path, progress: Progress) -> None:
        self._topology, self._log, self._progress = topology, log, progress
        self._program = program_of(topology)
        self.by_unit: dict[Unit, Bmv2Switch] = {}
        self.restarts: Counter[int] = Counter()
        self._restarted_at: dict[Unit, deque[float]] = defaultdict(lambda: deque(maxlen=RESTARTS))
        self._probed_at = time.monotonic()
        self._untold: set[int] = set()  # started again, and the controller does not know

    @contextmanager
    def standing(self, _cells: Cells) -> Iterator[None]:
        """Start them; leaving ends them. Their ports must be there."""
        units = self._topology.units_with(ENGINE) if self._program else ()
        with ExitStack() as stack:
            for done, unit in enumerate(units):
                self._progress("bmv2", done, len(units))
                assert self._program
                switch = Bmv2Switch(
                    unit.index, unit.tor_ports, self._program, self._log, self._topology.bmv2.log
                )
                self.by_unit[unit.index] = stack.enter_context(switch)
                self._let_frames_arrive(unit)
            if units:
                self._progress("bmv2", len(units), len(units))
            yield

    def verdicts(self) -> Counter[str]:
        """Count what all of them did with packets; one that was started again, since then."""
        counts: Counter[str] = Counter()
        for switch in self.by_unit.values():
            counts.update(switch.verdicts())
        return counts

    def require_alive(self) -> None:
        """Raise TestbedError if one has ended."""
        for unit, switch in self.by_unit.items():
            if how := switch.ended():
                raise TestbedError(ended_words(unit, how))

    def any_ended(self) -> bool:
        """Return whether one has ended, and was not started again yet."""
        return any(switch.ended() for switch in self.by_unit.values())

    def watch(self, places: Places) -> list[Restart]:
        """Start those that ended again; say which. One that ends again meanwhile is for the next call.

        TestbedError if one ended for good: after RESTARTS attempts to start it within RESTARTS_WITHIN_S.
        """
        self._probe()
        ended = [(unit, how) for unit, switch in self.by_unit.items() if (how := switch.ended())]
        restarts = [self._restart(unit, how, places) for unit, how in ended]
        return [restart for restart in restarts if restart]

    def _probe(self) -> None:
        """Ask each switch something now and then: one that does not answer is ended by that."""
        if time.monotonic() < self._probed_at + PROBE_S:
            return
        self._probed_at = time.monotonic()
        for switch in self.by_unit.values():
            with contextlib.suppress(TestbedError):
                switch.verdicts()

    def _restart(self, unit: Unit, how: str, places: Places) -> Restart | None:
        now, before = time.monotonic(), self._restarted_at[unit]
        if len(before) == RESTARTS and now - before[0] < RESTARTS_WITHIN_S:
            within = f"{RESTARTS} times within {RESTARTS_WITHIN_S:g} s"
            raise TestbedError(f"{ended_words(unit, how)}; it was started again {within}, which is the limit")
        before.append(now)
        self.restarts[unit] += 1
        switch = self.by_unit[unit]

        def restart() -> None:
            switch.restart()
            self._let_frames_arrive(self._topology.unit(unit))

        self._untold.add(unit)
        try:
            jobs = places.restart(unit, restart)
        except TestbedError:
            if not switch.ended():
                raise  # no further call would try again
            return None
        return Restart(unit, ended_words(unit, how), self.restarts[unit], jobs)

    def resettle(self, controller: Path) -> None:
        """Have the controller set the routes of those that were started again, and of those where it failed.
        What fails now, the next call does.
        """
        if not self.by_unit:
            return
        with contextlib.suppress(TestbedError):  # it is away
            unsettled = rpc.call(controller, "unsettled", timeout_s=_ANSWER_S)
            for unit in self._topology.units:
                if unit.name in unsettled or unit.index in self._untold:
                    self._resettle(controller, unit.index)

    def _resettle(self, controller: Path, unit: Unit) -> None:
        try:
            rpc.call(controller, "resettle", unit=addresses.unit_name(unit), timeout_s=_ANSWER_S)
        except TestbedError:
            if switch := self.by_unit.get(
                unit
            ):  # which ends if it does not answer, and then is started again
                with contextlib.suppress(TestbedError):
                    switch.verdicts()
        else:
            self._untold.discard(unit)

    def _let_frames_arrive(self, unit: UnitSpec) -> None:
        """Turn GRO on at unshaped links, merging nothing: at their other end is a device whose XDP program
        redirects, and such frames arrive where veth polls, which it does with GRO on. Not before the switch
        has opened its ports (Bmv2Switch says why).
        """
        hosts = range(1, unit.hosts + 1)
        bare = [
            addresses.tor_port_device(unit.index, host)
            for host in hosts
            if self._topology.host(unit.index, host).rate_mbps is None
        ]
        if self._topology.optical_link.rate_mbps is None:
            ports = range(1, unit.optical_ports + 1)
            bare += [addresses.optical_device(unit.index, port) for port in ports]
        with RouteSocket() as route:
            route.send([set_merging(socket.if_nametoindex(device), _MERGE_NOTHING) for device in bare])
        for device in bare:
            set_offloads(device, gro=True)
