"""The BMv2 switches of a running testbed: started, watched, and restarted when they end. The sums in an ended
switch are lost.
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
RESTARTS, RESTARTS_WITHIN_S = 5, 60.0  # after more restarts in this time, give up
PROBE_S = 2.0
_ANSWER_S = 10.0  # the controller itself queries the switch
_MERGE_NOTHING = 1


def program_of(topology: Topology) -> Path | None:
    """Return the program that the topology's switches run; None if it has none. HostError or RequestError if
    the program or `simple_switch` is missing.
    """
    if not topology.units_with(ENGINE):
        return None
    binary()
    bmv2 = topology.bmv2
    return compiled(bmv2.layout, topology.mtu, bmv2.programs)


def require(topology: Topology) -> None:
    """Raise the error for anything that such switches lack on this host (`program_of`)."""
    program_of(topology)


class Tors:
    """All BMv2 switches, by datapath id."""

    def __init__(self, topology: Topology, log: Path, progress: Progress) -> None:
        self._topology, self._log, self._progress = topology, log, progress
        self._program = program_of(topology)
        self.by_dpid: dict[Dpid, Bmv2Switch] = {}
        self.restarts: Counter[int] = Counter()
        self._restarted_at: dict[Dpid, deque[float]] = defaultdict(lambda: deque(maxlen=RESTARTS))
        self._probed_at = time.monotonic()
        self._untold: set[int] = set()  # restarted switches of which the controller does not know yet

    @contextmanager
    def standing(self, _cells: Cells) -> Iterator[None]:
        """Start the switches; leaving ends them. Their ports must exist."""
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
        """Count the packets of all switches by verdict; those of a restarted switch since its restart."""
        counts: Counter[str] = Counter()
        for switch in self.by_dpid.values():
            counts.update(switch.verdicts())
        return counts

    def require_alive(self) -> None:
        """Raise TestbedError if a switch has ended."""
        for dpid, switch in self.by_dpid.items():
            if how := switch.ended():
                raise TestbedError(ended_words(dpid, how))

    def any_ended(self) -> bool:
        """Return whether a switch has ended and was not restarted yet."""
        return any(switch.ended() for switch in self.by_dpid.values())

    def has_ended(self, dpid: Dpid) -> bool:
        return self.by_dpid[dpid].ended() is not None

    def watch(self) -> list[EndedSwitch]:
        """Return the ended switches, for `restart`. One that ends again meanwhile is reported by the next
        call.

        TestbedError if one is not to be restarted: after RESTARTS restarts within RESTARTS_WITHIN_S.
        """
        self._probe()
        return [self._counted(dpid, how) for dpid, switch in self.by_dpid.items() if (how := switch.ended())]

    def _probe(self) -> None:
        """Query each switch from time to time; this ends a switch that does not answer."""
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
        """Restart a switch, and note that the controller must be told."""
        self._untold.add(dpid)
        self.by_dpid[dpid].restart()
        self._let_frames_arrive(dpid)

    def resettle(self, controller: Path) -> None:
        """Have the controller set the routes of restarted switches, and of those where that failed. The next
        call retries failures.
        """
        if not self.by_dpid:
            return
        with contextlib.suppress(TestbedError):  # the controller is not running
            unsettled = rpc.call(controller, "unsettled", timeout_s=_ANSWER_S)
            for dpid in self._topology.switches:
                if addresses.tor_name(dpid) in unsettled or dpid in self._untold:
                    self._resettle(controller, dpid)

    def _resettle(self, controller: Path, dpid: Dpid) -> None:
        try:
            rpc.call(controller, "resettle", unit=addresses.tor_name(dpid), timeout_s=_ANSWER_S)
        except TestbedError:
            if switch := self.by_dpid.get(dpid):  # this ends it if it does not answer; then it is restarted
                with contextlib.suppress(TestbedError):
                    switch.verdicts()
        else:
            self._untold.discard(dpid)

    def _let_frames_arrive(self, dpid: Dpid) -> None:
        """Turn GRO on at unshaped links, without merging: a device at the other end has an XDP program that
        redirects, and redirected frames arrive only where veth polls, which it does with GRO. Call after the
        switch has opened its ports (Bmv2Switch says why).
        """
        bare = [device for device, number in self._ports(dpid).items() if self._is_unshaped(dpid, number)]
        with RouteSocket() as route:
            route.send([set_merging(socket.if_nametoindex(device), _MERGE_NOTHING) for device in bare])
        for device in bare:
            set_offloads(device, gro=True)

    def _is_unshaped(self, dpid: Dpid, number: int) -> bool:
        """Return whether the link at a port has no rate."""
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
