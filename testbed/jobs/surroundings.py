"""The surroundings of a job: answers of the controller and the machine at a job's start and end, in addition
to the links' counters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.aggregation.system import Layout
from testbed.errors import TestbedError
from testbed.jobs.environment import MASTER_PORT_BASE, PS_PORT_BASE
from testbed.jobs.result import events_in
from testbed.machine.interface import Counters
from testbed.messages.coding import decode
from testbed.messages.controller import NetworkLight, ReconfigurationEvent
from testbed.messages.result import OthersTraffic
from testbed.telemetry.network import LitNetwork, network
from testbed.telemetry.other_programs import Company, Spent, company
from testbed.telemetry.traffic import Owner, SeenPorts, grown, others
from testbed.topology import addresses
from testbed.topology.model import Topology

LOOK_BACK_S, LOOK_EVERY_S = 10.0, 2.5  # for jobs that still run


@dataclass(frozen=True, slots=True)
class Surrounding:
    """A reading of the surroundings. `light` is the controller's answer, None if it was away (`why`);
    `events` are the reconfigurations up to then; `ahead_s` is the offset of their clock to the monotonic
    clock.
    """

    spent: Spent
    faults: Sequence[tuple[str, str]]
    light: NetworkLight | None
    events: Sequence[ReconfigurationEvent]
    ahead_s: float
    why: str = ""


def recent_scenes(looks: Sequence[Surrounding]) -> Sequence[Surrounding]:
    """Return the readings of the last LOOK_BACK_S, and the one before."""
    since_s = time.monotonic() - LOOK_BACK_S
    first = max((at for at, each in enumerate(looks) if each.spent.at_s <= since_s), default=0)
    return looks[first:]


class Surroundings:
    """Reads the controller, the names of running testbeds (`testbeds`), and the machine's counters."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        controller: Callable[..., Any],
        testbeds: Callable[[], Collection[str]],
        counters: Counters,
    ) -> None:
        self._name, self._controller = name, controller
        self._testbeds, self._counters = testbeds, counters
        self._units = tuple(unit.index for unit in topology.units)
        self._has_core = topology.core_link is not None
        self._looking = threading.Lock()  # guards the field below
        self._looks: Sequence[Surrounding] = ()
        self._silent = sorted({unit.engine for unit in topology.units if not unit.data_plane.is_bridge})

    def look(self, faults: Sequence[tuple[str, str]]) -> Surrounding:
        """Read the surroundings now; `faults` are links and their faults, in words."""
        ahead_s = time.time() - time.monotonic()
        testbeds = self._testbeds()  # slow, so before the time of the reading
        now = self._counters.spent(time.monotonic(), testbeds)
        try:
            light = decode(NetworkLight, self._controller("light"), "light")
            events = events_in(self._controller("history"))
        except TestbedError as error:
            return Surrounding(now, faults, None, (), ahead_s, str(error))
        return Surrounding(now, faults, light, events, ahead_s)

    def lately(self, faults: Callable[[float], Sequence[tuple[str, str]]]) -> Sequence[Surrounding]:
        """Return the recent readings, with a new one if the last is LOOK_EVERY_S old. One thread reads for
        all running jobs; while it waits for a controller that is stopped, the others get the readings so far.
        `faults` returns the faults on links since a time of the monotonic clock.
        """
        if self._looking.acquire(blocking=False):
            try:
                now_s = time.monotonic()
                last_s = self._looks[-1].spent.at_s if self._looks else now_s
                if not self._looks or now_s - last_s >= LOOK_EVERY_S:
                    self._looks = recent_scenes([*self._looks, self.look(faults(last_s))])
            finally:
                self._looking.release()
        return self._looks

    def network(self, began: Surrounding, ended: Surrounding) -> LitNetwork:
        """Return the network between two readings."""
        if began.light is None or ended.light is None:
            return LitNetwork(self._units, self._has_core, unknown=began.why or ended.why)
        events = [event for event in ended.events if event.id > began.light.last_event]
        return network(
            self._units,
            self._has_core,
            began.light,
            ended.light,
            events,
            began.spent.at_s,
            ended.ahead_s,
        )

    def traffic(
        self,
        began: Surrounding,
        ended: Surrounding,
        layout: Layout,
        job: int,
        held: Collection[str],
        over_time: LitNetwork,
        seen: SeenPorts,
    ) -> list[OthersTraffic]:
        """Return the traffic of others on a job's links between two readings. `held`: hosts that other jobs
        had; `over_time`: the network between these readings; `seen`: TCP ports meanwhile.
        """
        if began.light is None or ended.light is None:
            return []
        ports = {MASTER_PORT_BASE + job % 1000, PS_PORT_BASE + job % 1000}
        owner = Owner({addresses.host_name(*host) for host in layout.hosts()}, ports, seen)
        flows = grown(began.light.flows, ended.light.flows)
        names = {address: self._host(address) for flow in flows for address in flow[:2]}
        known = {address: name for address, name in names.items() if name}
        return others(flows, known, owner, held, over_time, over_time.links(layout))

    def _host(self, address: str) -> str | None:
        """Return the name of the host that has this address, or would have it: packets to a missing host, or
        to a switch, still cross the links to its rack.
        """
        unit, name = addresses.host_at(address) or (None, None)
        return name if unit in self._units else None

    def uncounted(self, began: Surrounding, ended: Surrounding) -> str | None:
        """Return why other traffic between two readings is not fully known; None: it is."""
        if began.light is None or ended.light is None:
            return began.why or ended.why or "the controller was away"
        return f"units with engine: {', '.join(self._silent)} count none" if self._silent else None

    def company(self, began: Surrounding, ended: Surrounding) -> Company:
        """Return the other users of the machine between two readings."""
        return company(began.spent, ended.spent, self._name)
