"""A machine in memory: the second implementation of testbed/machine/interface.py, for tests. Its hosts'
processes are ordinary processes of the user that runs the tests; its links carry nothing.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from testbed.errors import RequestError
from testbed.machine.interface import DeviceProgram, EndedSwitch
from testbed.machine.links import NO_DELAY, Captured, LinkDelay, LinkDisturbance, LinkFault
from testbed.messages.links import CalendarStatus, FaultStatus, LinkSetting
from testbed.telemetry.counters import MachineReading
from testbed.telemetry.other_programs import Spent
from testbed.telemetry.traffic import SeenPorts
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.model import Topology
from testbed.topology.places import Host
from tests.processes import ENCLOSURES, spawn

HEADER = b"capture"
COUNTERS = dict.fromkeys(("seen", "lost", "duplicated", "held", "released", "corrupted"), 0)


@dataclass(frozen=True, slots=True)
class Counted:
    """The counters of a link that carried nothing."""

    rate_mbps: float | None
    is_up: bool = True
    bytes_ab: int = 0
    bytes_ba: int = 0
    drops: int = 0
    device_drops: int = 0
    backlog_bytes: int = 0


@dataclass(slots=True)
class MemoryLinks:
    """Links with the rates that they are made with, and with the settings that a user changes."""

    made: Mapping[str, float | None]
    rates: dict[str, float] = field(default_factory=dict)
    by_hand: dict[str, float] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    delays: dict[str, LinkDelay] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)

    def statistics(self, queues_only: bool = False) -> dict[str, Counted]:
        return {
            name: Counted(self.rates.get(name, rate), name not in self.down)
            for name, rate in self.made.items()
        }

    def gone_links(self) -> dict[str, str]:
        return {}

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        self.rates |= rates_mbps

    def by_hand_mbps(self, link: str) -> float | None:
        return self.by_hand.get(link)

    def rate_mbps(self, name: str) -> float | None:
        return self.by_hand.get(name)

    def ever_by_hand(self) -> set[str]:
        return self.ever

    def fault_states(self) -> list[LinkDisturbance]:
        return []

    def ended_faults(self, since_s: float) -> list[LinkDisturbance]:
        return []

    def names(self, words: Sequence[str]) -> list[str]:
        for word in words:
            if self.made.get(word) is None:
                raise RequestError(f"link {word}: there is none")
        return list(words)

    def set(
        self,
        names: Sequence[str],
        rate_mbps: float | None = None,
        is_up: bool | None = None,
        delay: LinkDelay | None = None,
    ) -> None:
        self.ever.update(names)
        if rate_mbps is not None:
            self.by_hand |= dict.fromkeys(names, rate_mbps)
            self.rates |= dict.fromkeys(names, rate_mbps)
        if is_up is not None:
            self.down = self.down - {*names} if is_up else self.down | {*names}
        if delay is not None:
            self.delays |= dict.fromkeys(names, delay)

    def reset(self, names: Sequence[str]) -> None:
        for name in names:
            for changed in (self.rates, self.by_hand, self.delays):
                changed.pop(name, None)
        self.down -= {*names}

    def states(self) -> tuple[LinkSetting, ...]:
        return tuple(
            LinkSetting(
                link=name,
                rate_mbps=counted.rate_mbps,
                configured_mbps=made,
                by_hand_mbps=self.by_hand.get(name),
                up=counted.is_up,
                **asdict(self.delays.get(name, NO_DELAY)),
            )
            for name, counted in self.statistics().items()
            if (made := self.made[name]) is not None
        )


@dataclass(slots=True)
class MemoryFaults:
    """Faults of the links that have a rate."""

    links: Sequence[str]
    set_on: dict[tuple[str, str], LinkFault] = field(default_factory=dict)

    def shaped(self) -> list[str]:
        return list(self.links)

    def require(self, link: str) -> None:
        if link not in self.links:
            raise RequestError(f"link {link}: there is none")

    def set(self, link: str, fault: LinkFault, direction: str = "both") -> None:
        self.set_on[link, direction] = fault

    def clear(self, link: str | None = None) -> None:
        self.set_on = {key: fault for key, fault in self.set_on.items() if link not in (None, key[0])}

    def states(self) -> tuple[FaultStatus, ...]:
        return tuple(
            FaultStatus(*key, **asdict(fault), counters=COUNTERS) for key, fault in self.set_on.items()
        )


class MemoryHosts:
    """Hosts; each has this process's own environment."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self.started: list[tuple[str, ...]] = []

    def enclosed(self, name: str, uid: int) -> AbstractContextManager[Any]:
        return ENCLOSURES.opened(name, uid)

    def popen_in(self, host: str, argv: Sequence[str], enclosure: Any = None, **options: Any) -> Any:
        if host not in self._names:
            raise RequestError(f"host {host}: no such host")
        self.started.append((host, *argv))
        return spawn(argv, enclosure, **options)

    def popen_aside(self, argv: Sequence[str], **options: Any) -> Any:
        self.started.append(("aside", *argv))
        return spawn(argv, **options)

    def fork_in(self, host: str, script: Sequence[str], enclosure: Any, **options: Any) -> Any:
        return self.popen_in(host, script, enclosure, **options)

    def end_forks(self) -> None:
        """Do nothing: there are no forks."""

    def set_users(self, users: Mapping[str, int]) -> None:
        """Do nothing: no traffic passes between hosts."""

    def kept_apart(self) -> None:
        return None

    def unsent(self, hosts: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(hosts, 0)

    @contextlib.contextmanager
    def watch_ports(self, hosts: Sequence[str], signs: Sequence[bytes]) -> Iterator[Any]:
        yield SimpleNamespace(ports=SeenPorts())


class MemoryPrograms:
    """The testbed's own programs, always attached at every device."""

    def __init__(self) -> None:
        self.needed: list[str] = []

    def need(self, program: str) -> None:
        self.needed.append(program)

    def at_switches(self, devices: Collection[str]) -> dict[str, DeviceProgram | None]:
        return {device: DeviceProgram("tor_port", "tor_port", True, True) for device in sorted(devices)}

    def at_host(self, host: Host) -> DeviceProgram:
        return DeviceProgram("host_port", "host_port", True, True)

    def attach_at(self, host: Host) -> None:
        """Do nothing: the program is attached."""


class MemorySwitches:
    """Switches that sum nothing, and that end when a test sets `ended`."""

    def __init__(self, dpids: Collection[Dpid], slots: int) -> None:
        self.by_dpid: Mapping[Dpid, Any] = {dpid: SimpleNamespace(slots=slots) for dpid in dpids}
        self.restarts: Counter[int] = Counter()
        self.ended: set[Dpid] = set()

    def any_ended(self) -> bool:
        return bool(self.ended)

    def has_ended(self, dpid: Dpid) -> bool:
        return dpid in self.ended

    def require_alive(self) -> None:
        """Do nothing: ended switches are started again."""

    def watch(self) -> list[EndedSwitch]:
        self.restarts.update(self.ended)
        return [EndedSwitch(dpid, f"switch {dpid} ended", self.restarts[dpid]) for dpid in self.ended]

    def restart(self, dpid: Dpid) -> None:
        self.ended = self.ended - {dpid}

    def resettle(self, controller: Path) -> None:
        """Do nothing: the switches have no routes."""


class MemoryCounters:
    """Counters that never change."""

    def reading(self) -> MachineReading:
        return MachineReading(np.zeros((1, 4)), np.zeros((1, 2), np.int64), 0.0)

    def spent(self, at_s: float, testbeds: Collection[str]) -> Spent:
        return Spent(at_s, 0.0, 0.0, frozenset(testbeds))


class MemoryTap(contextlib.nullcontext[None]):
    """A capture on a link on which nothing passes."""

    is_from_tor = False

    def __init__(self, link: str) -> None:
        super().__init__()
        self.link = link

    def capture(
        self, write: Callable[[bytes], object], count: int, seconds: float, stop: Callable[[], bool]
    ) -> Captured:
        write(HEADER)
        return Captured(seconds=seconds)


class InMemory:
    """A machine (testbed.machine.interface.Machine). `steps` records the order in which it was made and
    removed.
    """

    datapath = "memory"
    pins = bridges = Path("/nowhere")
    rings: Any = SimpleNamespace()

    def __init__(self, topology: Topology, *_: Any) -> None:
        rates = {addresses.host_name(*host): topology.host(*host).rate_mbps for host in topology.hosts}
        rates |= {port: topology.optical_mbps(port) for unit in topology.units for port in unit.ports}
        self.links = self.by_hand = MemoryLinks(rates)
        self.faults = MemoryFaults([link for link, rate in rates.items() if rate is not None])
        self.hosts = MemoryHosts(topology.host_names)
        self.programs = MemoryPrograms()
        self.switches = MemorySwitches(topology.switches, 8192)
        self.counters = MemoryCounters()
        self.steps: list[str] = []

    def __enter__(self) -> Self:
        self.steps.append("made")
        return self

    def __exit__(self, *_: object) -> None:
        self.steps.append("gone")

    def load(self) -> None:
        self.steps.append("loaded")

    def connect(self, port: int) -> None:
        self.steps.append("connected")

    def watch(self) -> None:
        """Do nothing: no process is needed."""

    def calendar(self) -> tuple[CalendarStatus, ...]:
        return ()

    def calendar_overrun(self) -> int:
        return 0

    def verdicts(self) -> dict[str, int]:
        return {}

    def tap(self, link: str) -> MemoryTap:
        self.faults.require(link)
        return MemoryTap(link)
