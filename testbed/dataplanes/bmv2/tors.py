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

from testbed.client import rpc
from testbed.dataplanes.bmv2.process import binary, ended_words
from testbed.dataplanes.bmv2.program import compiled
from testbed.dataplanes.bmv2.switch import Bmv2Switch
from testbed.dataplanes.tors import Progress
from testbed.dataplanes.xdp.cells import Cells
from testbed.emulation.links import set_offloads
from testbed.emulation.netlink import RouteSocket, set_merging
from testbed.errors import TestbedError
from testbed.machine.interface import EndedSwitch
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.model import Topology

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
    bmv2 = topology.bmv2
    return compiled(bmv2.layout, topology.mtu, bmv2.programs)


def require(topology: Topology) -> None:
    """Raise what a topology with such switches lacks on this host (`program_of`)."""
    program_of(topology)


class Tors:
    """All of them, by their numbers."""

    def __init__(self, topology: Topology, log: Path, progress: Progress) -> None:
        self._topology, self._log, self._progress = topology, log, progress
        self._program = program_of(topology)
        self.by_dpid: dict[Dpid, Bmv2Switch] = {}
        self.restarts: Counter[int] = Counter()
        self._restarted_at: dict[Dpid, deque[float]] = defaultdict(lambda: deque(maxlen=RESTARTS))
        self._probed_at = time.monotonic()
        self._untold: set[int] = set()  # started again, and the controller does not know

    @contextmanager
    def standing(self, _cells: Cells) -> Iterator[None]:
        """Start them; leaving ends them. Their ports must be there."""
        units = self._topology.units_with(ENGINE) if self._program else ()
        dpids = [dpid for unit in units for dpid in unit.switches]
        with ExitStack() as stack:
            for done, dpid in enumerate(dpids):
                self._progress("bmv2", done, len(dpids))
                assert self._program
                ports, verbose = self._ports(dpid), self._topology.bmv2.log
                switch = Bmv2Switch(dpid, ports, self._program, self._log, verbose)
                self.by_dpid[dpid] = stack.enter_context(switch)
                self._let_frames_arrive(dpid)
            if dpids:
                self._progress("bmv2", len(dpids), len(dpids))
            yield

    def _ports(self, dpid: Dpid) -> dict[str, int]:
        return self._topology.unit(addresses.tor_unit(dpid)).ports_of(dpid)

    def verdicts(self) -> Counter[str]:
        """Count what all of them did with packets; one that was started again, since then."""
        counts: Counter[str] = Counter()
        for switch in self.by_dpid.values():
            counts.update(switch.verdicts())
        return counts

    def require_alive(self) -> None:
        """Raise TestbedError if one has ended."""
        for dpid, switch in self.by_dpid.items():
            if how := switch.ended():
                raise TestbedError(ended_words(dpid, how))

    def any_ended(self) -> bool:
        """Return whether one has ended, and was not started again yet."""
        return any(switch.ended() for switch in self.by_dpid.values())

    def has_ended(self, dpid: Dpid) -> bool:
        return self.by_dpid[dpid].ended() is not None

    def watch(self) -> list[EndedSwitch]:
        """Return those that ended, which `restart` starts again. One that ends again meanwhile is for the
        next call.

        TestbedError if one ended for good: after RESTARTS attempts to start it within RESTARTS_WITHIN_S.
        """
        self._probe()
        return [self._counted(dpid, how) for dpid, switch in self.by_dpid.items() if (how := switch.ended())]

    def _probe(self) -> None:
        """Ask each switch something now and then: one that does not answer is ended by that."""
        if time.monotonic() < self._probed_at + PROBE_S:
            return
        self._probed_at = time.monotonic()
        for switch in self.by_dpid.values():
            with contextlib.suppress(TestbedError):
                switch.verdicts()

    def _counted(self, dpid: Dpid, how: str) -> EndedSwitch:
        now, before = time.monotonic(), self._restarted_at[dpid]
        if len(before) == RESTARTS and now - before[0] < RESTARTS_WITHIN_S:
            within = f"{RESTARTS} times within {RESTARTS_WITHIN_S:g} s"
            raise TestbedError(f"{ended_words(dpid, how)}; it was started again {within}, which is the limit")
        before.append(now)
        self.restarts[dpid] += 1
        return EndedSwitch(dpid, ended_words(dpid, how), self.restarts[dpid])

    def restart(self, dpid: Dpid) -> None:
        """Start one again, which the controller is to be told."""
        self._untold.add(dpid)
        self.by_dpid[dpid].restart()
        self._let_frames_arrive(dpid)

    def resettle(self, controller: Path) -> None:
        """Have the controller set the routes of those that were started again, and of those where it failed.
        What fails now, the next call does.
        """
        if not self.by_dpid:
            return
        with contextlib.suppress(TestbedError):  # it is away
            unsettled = rpc.call(controller, "unsettled", timeout_s=_ANSWER_S)
            for dpid in self._topology.switches:
                if addresses.tor_name(dpid) in unsettled or dpid in self._untold:
                    self._resettle(controller, dpid)

    def _resettle(self, controller: Path, dpid: Dpid) -> None:
        try:
            rpc.call(controller, "resettle", unit=addresses.tor_name(dpid), timeout_s=_ANSWER_S)
        except TestbedError:
            if switch := self.by_dpid.get(
                dpid
            ):  # which ends if it does not answer, and then is started again
                with contextlib.suppress(TestbedError):
                    switch.verdicts()
        else:
            self._untold.discard(dpid)

    def _let_frames_arrive(self, dpid: Dpid) -> None:
        """Turn GRO on at unshaped links, merging nothing: at their other end is a device whose XDP program
        redirects, and such frames arrive where veth polls, which it does with GRO on. Not before the switch
        has opened its ports (Bmv2Switch says why).
        """
        bare = [device for device, number in self._ports(dpid).items() if self._is_unshaped(dpid, number)]
        with RouteSocket() as route:
            route.send([set_merging(socket.if_nametoindex(device), _MERGE_NOTHING) for device in bare])
        for device in bare:
            set_offloads(device, gro=True)

    def _is_unshaped(self, dpid: Dpid, number: int) -> bool:
        """Return whether the link behind a port has no rate."""
        unit, rack = addresses.tor_unit(dpid), addresses.tor_rack(dpid)
        if addresses.is_host_port(number):
            return self._topology.host(unit, addresses.in_rack(rack, number)).rate_mbps is None
        if addresses.is_optical_port(number):
            port = addresses.optical_port_name(unit, addresses.optical_port_of(number))
            return self._topology.optical_mbps(port) is None
        if number == addresses.optical_number(addresses.CORE_WAY):
            return self._topology.core_mbps(addresses.core_link_name(unit)) is None
        return (
            self._topology.pod_mbps(addresses.rack_name(unit, rack or addresses.rack_behind(number))) is None
        )
