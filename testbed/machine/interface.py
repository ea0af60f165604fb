"""The interface of the machine that a testbed acts on, and its parts. Only data crosses it.

Above the interface are jobs, queue, policies and verdicts, which import nothing from below it: namespaces,
links, Open vSwitch, XDP and BMv2, cgroups, /proc and /sys. The only handle local to one machine is a process
(process.py).
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
from testbed.messages.links import CalendarStatus, FaultStatus, LinkSetting
from testbed.telemetry.counters import MachineReading
from testbed.telemetry.other_programs import Spent
from testbed.telemetry.samples import LinkCounters
from testbed.telemetry.traffic import SeenPorts
from testbed.topology.addresses import Dpid
from testbed.topology.places import Host


class Links(Protocol):
    """All links, by name: u1h1 is the link of that host, u1o1 the link of that optical port."""

    def statistics(self, queues_only: bool = False) -> Mapping[str, LinkCounters]:
        """Count the traffic of each link since it was made. With `queues_only`, devices that have a rate are
        read by their queues alone, which costs less.
        """

    def gone_links(self) -> dict[str, str]:
        """Return the links that had lost a device at the latest `statistics`, each with that device."""

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        """Change the rates of links, and read them back."""

    def by_hand_mbps(self, link: str) -> float | None:
        """Return the rate that a user set on a link; None if no user did."""

    def ever_by_hand(self) -> Collection[str]:
        """Return the links on which a user has set something, even temporarily."""

    def fault_states(self) -> Sequence[LinkDisturbance]:
        """Return the faults and delays that are set."""

    def ended_faults(self, since_s: float) -> Sequence[LinkDisturbance]:
        """Return the faults and delays that ended after a time of the monotonic clock."""


class ByHand(Protocol):
    """A user's settings on the links that have a rate."""

    def names(self, words: Sequence[str]) -> list[str]:
        """Return the links that a user's words select. RequestError for a link that does not exist or has no
        rate.
        """

    def set(
        self,
        names: Sequence[str],
        rate_mbps: float | None = None,
        is_up: bool | None = None,
        delay: LinkDelay | None = None,
    ) -> None:
        """Set rates or delays, or set links up or down, and read the settings back."""

    def reset(self, names: Sequence[str]) -> None:
        """Restore the configuration's rates; set the links up and without delay."""

    def rate_mbps(self, name: str) -> float | None:
        """Return the rate that a user set on a link; None if no user did."""

    def states(self) -> tuple[LinkSetting, ...]:
        """Return each link's current settings beside the configuration's."""


class Faults(Protocol):
    """Loss, duplication, reordering and corruption on the links that have a rate."""

    def shaped(self) -> list[str]:
        """Return the links that have a rate, and so can have a fault, in their order."""

    def require(self, link: str) -> None:
        """Raise RequestError if the link does not exist, or cannot have a fault."""

    def set(self, link: str, fault: LinkFault, direction: str = "both") -> None:
        """Set a link's fault; it replaces an earlier one."""

    def clear(self, link: str | None = None) -> None:
        """End the faults of a link, or of all links."""

    def states(self) -> tuple[FaultStatus, ...]:
        """Return the fault of every direction, in the order of the links."""


class PortsSeen(AbstractContextManager[Any], Protocol):
    """A watch on hosts' TCP ports while the block runs."""

    @property
    def ports(self) -> SeenPorts:
        """The ports seen since the block was entered."""


class Hosts(Protocol):
    """The hosts, by name. Each method raises RequestError for a host that does not exist."""

    def popen_in(
        self, host: str, argv: Sequence[str], enclosure: EnclosureHandle | None = None, **options: Any
    ) -> Spawned:
        """Start a process in a host, within the host's CPU limit, and in an enclosure if one is given.
        Options: `uid`, `gid`, `groups`, `env`, `cwd`, `new_session`, and inherited descriptors: `stdin`,
        `stdout`, `stderr`, `pass_fds`.
        """

    def popen_aside(self, argv: Sequence[str], **options: Any) -> Spawned:
        """Start a process that can reach no host."""

    def fork_in(self, host: str, script: Sequence[str], enclosure: Any, **options: Any) -> Process:
        """Start a script in a host as a fork of a template process that has torch loaded."""

    def end_forks(self) -> None:
        """End the template process of the forks, and with it the forks that still run."""

    def enclosed(self, name: str, uid: int) -> AbstractContextManager[Any]:
        """Make an enclosure (EnclosureHandle) for processes of this user; all of them end with the block."""

    def set_users(self, users: Mapping[str, int]) -> None:
        """Isolate hosts from each other by the users whose jobs run on them."""

    def kept_apart(self) -> dict[str, int] | None:
        """Count the frames dropped on their way to hosts of other users' jobs, by sending host; None where
        hosts are not isolated.
        """

    def unsent(self, hosts: Sequence[str]) -> Mapping[str, int]:
        """Count the frames that each host's own interface failed to pass to its link."""

    def watch_ports(self, hosts: Sequence[str], signs: Sequence[bytes]) -> PortsSeen:
        """Watch the TCP ports of hosts. A process belongs to the job if its command line or environment, or
        those of its session's leader, contain one of these signs.
        """


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """The XDP program on a device: `wanted` is the testbed's own program for it, `at_hand` says in words
    which one is attached.
    """

    wanted: str
    at_hand: str
    is_wanted: bool
    is_there: bool  # any program is attached
    is_generic: bool = False


class ProgramsAtDevices(Protocol):
    """The XDP programs on the devices of switches and hosts."""

    def need(self, program: str) -> None:
        """Load a program that is loaded only for the few jobs that use it."""

    def at_switches(self, devices: Collection[str]) -> Mapping[str, DeviceProgram | None]:
        """Return the program on each of these devices that is a switch port of the fast path; None if the
        device is gone.
        """

    def at_host(self, host: Host) -> DeviceProgram:
        """Return the program on a host's interface."""

    def attach_at(self, host: Host) -> None:
        """Attach the testbed's program to a host's interface again."""


@dataclass(frozen=True, slots=True)
class EndedSwitch:
    """A switch process that ended (`ended` says how) and is due for its `count`-th restart."""

    dpid: Dpid
    ended: str
    count: int


class UnitSwitches(place_interfaces.SummingSwitches, Protocol):
    """The switches of units, ToRs and pod switches: places that aggregate, and processes that may end."""

    @property
    def restarts(self) -> Counter[int]:
        """The number of restarts of each switch."""

    def require_alive(self) -> None:
        """Raise TestbedError if a switch has ended."""

    def watch(self) -> Sequence[EndedSwitch]:
        """Return the switches that ended and can be restarted. TestbedError if one is not to be restarted."""

    def restart(self, dpid: Dpid) -> None:
        """Restart a switch; it then has no job's state."""

    def has_ended(self, dpid: Dpid) -> bool:
        """Return whether the switch has ended and was not restarted yet."""

    def resettle(self, controller: Path) -> None:
        """Have the controller at this socket set the routes of switches that lack them."""


class LinkTap(AbstractContextManager[Any], Protocol):
    """A capture of the frames of one link while the block runs."""

    @property
    def link(self) -> str: ...

    @property
    def is_from_tor(self) -> bool:
        """Return whether end a of the link is at a ToR; "forward" is the direction from end a."""

    def capture(
        self, write: Callable[[bytes], object], count: int, seconds: float, stop: Callable[[], bool]
    ) -> Captured:
        """Write a capture file's bytes until `count` frames are captured, `seconds` have passed, or `stop`
        returns true.
        """


class Counters(Protocol):
    """The machine's own counters, which count from its boot."""

    def reading(self) -> MachineReading:
        """Read the counters of processors and packet processing."""

    def spent(self, at_s: float, testbeds: Collection[str]) -> Spent:
        """Return the processor time that programs have used until `at_s`; `testbeds` names the testbeds that
        run.
        """


class Machine(Protocol):
    """A context manager: entering makes links, hosts and bridges, leaving removes all of them."""

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
        """The hosts' side of the data plane: their workers' rings, and the hosts as places."""

    @property
    def counters(self) -> Counters: ...

    @property
    def datapath(self) -> str:
        """The datapath type of the bridges: `system` (the kernel's) or `netdev` (of a user-space process)."""

    @property
    def pins(self) -> Path:
        """The folder of the pinned BPF maps by which a local controller sets circuits."""

    @property
    def bridges(self) -> Path:
        """The folder of the sockets by which a local controller queries bridges."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: Any) -> None: ...

    def load(self) -> None:
        """Load and attach the data-plane programs and start the switches. Call once, after entering."""

    def connect(self, port: int) -> None:
        """Connect the bridges to the controller at this TCP port."""

    def watch(self) -> None:
        """Raise TestbedError if a process that the whole testbed needs has ended."""

    def verdicts(self) -> Mapping[str, int]:
        """Count the packets of programs and switches by verdict (names in testbed/wire/verdicts.py)."""

    def calendar(self) -> tuple[CalendarStatus, ...]:
        """Return the counts of the calendar queues that ever had a frame."""

    def calendar_overrun(self) -> int:
        """Count the frames that were lost because they came faster than the queues took them in."""

    def tap(self, link: str) -> LinkTap:
        """Make a capture of a link's frames. RequestError for an unknown link or one without a rate."""
