"""A machine, as a testbed acts on it: the interface, and its parts. Data goes in, and data comes out.

Above it are jobs, queue, policies and verdicts, which import nothing of what is below: namespaces, links,
Open vSwitch, XDP and BMv2, cgroups, /proc and /sys. The one local handle is a process (process.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from testbed.aggregation import place_interfaces
from testbed.machine.links import Captured, LinkDelay, LinkDisturbance, LinkFault
from testbed.machine.process import EnclosureHandle, Process, Spawned
from testbed.messages.links import FaultStatus, LinkSetting
from testbed.telemetry.counters import MachineReading
from testbed.telemetry.other_programs import Spent
from testbed.telemetry.samples import LinkCounters
from testbed.telemetry.traffic import SeenPorts
from testbed.topology.addresses import Dpid
from testbed.topology.places import Host


class Links(Protocol):
    """All links, by name: u1h1 is that host's, u1o1 that optical port's."""

    def statistics(self, queues_only: bool = False) -> Mapping[str, LinkCounters]:
        """Count what crossed each since it was made; with `queues_only` devices that have a rate are counted
        by their queues alone, which costs less.
        """

    def gone_links(self) -> dict[str, str]:
        """Return the links that lacked a device when they were last counted, and which."""

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        """Change links' rates, read back."""

    def by_hand_mbps(self, link: str) -> float | None:
        """Return the rate that a user has given to a link; None where nobody has."""

    def ever_by_hand(self) -> Collection[str]:
        """Return the links that a user has set something on, if only for a while."""

    def fault_states(self) -> Sequence[LinkDisturbance]:
        """Return the faults that are set, and the delays."""

    def ended_faults(self, since_s: float) -> Sequence[LinkDisturbance]:
        """Return the faults and delays that ended since a moment of the monotonic clock."""


class ByHand(Protocol):
    """The links that have a rate, in the hands of a user."""

    def names(self, words: Sequence[str]) -> list[str]:
        """Return the links that these words mean. RequestError for one that is not there or has no rate."""

    def set(
        self,
        names: Sequence[str],
        rate_mbps: float | None = None,
        is_up: bool | None = None,
        delay: LinkDelay | None = None,
    ) -> None:
        """Set rates, delays, or have links up or down, and read that back."""

    def reset(self, names: Sequence[str]) -> None:
        """Give links the configuration's rates again, and have them up and without delay."""

    def rate_mbps(self, name: str) -> float | None:
        """Return the rate that a user has given to a link; None where nobody has."""

    def states(self) -> tuple[LinkSetting, ...]:
        """Return each link as it is now, beside what the configuration says."""


class Faults(Protocol):
    """Loss, duplication, reordering and corruption on the links that have a rate."""

    def shaped(self) -> list[str]:
        """Return the links that have a rate, and so room for a fault, in their order."""

    def require(self, link: str) -> None:
        """RequestError if there is none of that name, or it has no room for a fault."""

    def set(self, link: str, fault: LinkFault, direction: str = "both") -> None:
        """Set a link's fault, in place of the one that it has."""

    def clear(self, link: str | None = None) -> None:
        """End the faults of a link, or all of them."""

    def states(self) -> tuple[FaultStatus, ...]:
        """Return every direction's fault, in the links' order."""


class PortsSeen(AbstractContextManager[Any], Protocol):
    """A watch of hosts' TCP ports while the block runs."""

    @property
    def ports(self) -> SeenPorts:
        """Return what was seen since the block was entered."""


class Hosts(Protocol):
    """The hosts, by name. Each raises RequestError for one that is not there."""

    def popen_in(
        self, host: str, argv: Sequence[str], enclosure: EnclosureHandle | None = None, **options: Any
    ) -> Spawned:
        """Start a process in a host, within the host's limit, and in an enclosure. Options: `uid`, `gid`,
        `groups`, `env`, `cwd`, `new_session`, and what is inherited: `stdin`, `stdout`, `stderr`, `pass_fds`.
        """

    def popen_aside(self, argv: Sequence[str], **options: Any) -> Spawned:
        """Start a process that reaches no host."""

    def fork_in(self, host: str, script: Sequence[str], enclosure: Any, **options: Any) -> Process:
        """Start a fork of a process that has torch loaded, which becomes the script, in a host."""

    def end_forks(self) -> None:
        """End the process that they are forks of, and with it those that still run."""

    def enclosed(self, name: str, uid: int) -> AbstractContextManager[Any]:
        """Make an enclosure for what runs as this user, an EnclosureHandle; all of it ends with the block."""

    def set_users(self, users: Mapping[str, int]) -> None:
        """Keep hosts apart by the users whose jobs have them."""

    def kept_apart(self) -> dict[str, int] | None:
        """Count the frames that were dropped on their way to hosts of other users' jobs, by the host that
        sent them; None where hosts are not kept apart.
        """

    def unsent(self, hosts: Sequence[str]) -> Mapping[str, int]:
        """Count the frames that each host's own interface could not hand to its link."""

    def watch_ports(self, hosts: Sequence[str], signs: Sequence[bytes]) -> PortsSeen:
        """Watch the TCP ports of hosts: a process is the job's whose words or environment have one of these
        signs, or whose session's leader has.
        """


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """The XDP program at a device: `wanted` is the testbed's own there, `at_hand` in words what is there."""

    wanted: str
    at_hand: str
    is_wanted: bool
    is_there: bool  # whichever it is
    is_generic: bool = False


class ProgramsAtDevices(Protocol):
    """The programs at the devices of switches and hosts."""

    def need(self, program: str) -> None:
        """Load what few jobs have use for."""

    def at_switches(self, devices: Collection[str]) -> Mapping[str, DeviceProgram | None]:
        """Return the program at those of these devices that are switches' ports of the fast path; None: the
        device is gone.
        """

    def at_host(self, host: Host) -> DeviceProgram:
        """Return the program at a host's interface."""

    def attach_at(self, host: Host) -> None:
        """Attach the testbed's at a host's interface again."""


@dataclass(frozen=True, slots=True)
class EndedSwitch:
    """A switch that ended, as `ended` says, and is to be started again, for the `count`-th time."""

    dpid: Dpid
    ended: str
    count: int


class UnitSwitches(place_interfaces.SummingSwitches, Protocol):
    """The switches of units, ToRs and those of pods, as places that sum, and as processes that may end."""

    @property
    def restarts(self) -> Counter[int]:
        """Count how often each was started again."""

    def require_alive(self) -> None:
        """Raise TestbedError if one has ended."""

    def watch(self) -> Sequence[EndedSwitch]:
        """Return those that ended. TestbedError if one ended for good."""

    def restart(self, dpid: Dpid) -> None:
        """Start one again; it knows no job then."""

    def has_ended(self, dpid: Dpid) -> bool:
        """Return whether it has, and was not started again yet."""

    def resettle(self, controller: Path) -> None:
        """Have the controller at this socket set the routes of those that lack them."""


class LinkTap(AbstractContextManager[Any], Protocol):
    """A look at the frames of one link while the block runs."""

    @property
    def link(self) -> str: ...

    @property
    def is_from_tor(self) -> bool:
        """Return whether the link's end a, from which forward is, is a ToR's."""

    def capture(
        self, write: Callable[[bytes], object], count: int, seconds: float, stop: Callable[[], bool]
    ) -> Captured:
        """Write a capture file's bytes, until so many frames or seconds are over or `stop` says so."""


class Counters(Protocol):
    """The counters of the machine itself, which count from its start."""

    def reading(self) -> MachineReading:
        """Return a reading of processors and packet work, now."""

    def spent(self, at_s: float, testbeds: Collection[str]) -> Spent:
        """Return what programs took of the cores so far, at `at_s`, when these testbeds ran."""


class Machine(Protocol):
    """A context manager: entering makes links, hosts and bridges, leaving takes all of it down."""

    @property
    def links(self) -> Links: ...
    @property
    def by_hand(self) -> ByHand: ...
    @property
    def faults(self) -> Faults: ...
    @property
    def hosts(self) -> Hosts: ...
    @property
    def programs(self) -> ProgramsAtDevices: ...
    @property
    def switches(self) -> UnitSwitches: ...
    @property
    def rings(self) -> place_interfaces.Hosts:
        """The hosts' end of the data plane: their workers' rings, and the hosts as places."""

    @property
    def counters(self) -> Counters: ...

    @property
    def datapath(self) -> str:
        """The datapath of the bridges: the kernel's (system), or one of a process (netdev)."""

    @property
    def pins(self) -> Path:
        """The folder of the pins by which a controller on this machine sets circuits."""

    @property
    def bridges(self) -> Path:
        """The folder by whose sockets such a controller asks bridges."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: Any) -> None: ...

    def load(self) -> None:
        """Load the programs, attach them, and start the switches: what sums. Once, after entering."""

    def connect(self, port: int) -> None:
        """Have the bridges connect to the controller at this port of TCP."""

    def watch(self) -> None:
        """Raise TestbedError if a process that all of it needs has ended."""

    def verdicts(self) -> Mapping[str, int]:
        """Count what programs and switches did with packets: names in testbed/wire/verdicts.py."""

    def tap(self, link: str) -> LinkTap:
        """Return a look at a link's frames. RequestError for none such, and for one without a rate."""
