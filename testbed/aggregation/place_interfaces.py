"""The interfaces that admission uses: a place of any kind, and the hosts' end of a data plane. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.aggregation.entries import Entry, Sender, Tick
from testbed.topology.addresses import Dpid
from testbed.topology.places import Host
from testbed.wire import spec


class SummingPlace(Protocol):
    """A place of any kind. `number` is a job's."""

    @property
    def slots(self) -> int:
        """Return its number of slots for jobs; GROUP_SLOTS more, for groups, follow them."""

    def set_group(
        self, number: int, tree: int, devices: Sequence[str], bundles: Sequence[Sequence[str]] = ()
    ) -> None:
        """Set the devices by which the results of a job's tree leave: all of `devices`, and one of each of
        `bundles`, which list parallel circuits. Called before `admit`. During the change, each result leaves
        by either the old or the new devices.
        """

    def admit(self, number: int, entry: Entry) -> None:
        """Set the entry of a job's tree. If the tree is new here, its segment's slots are empty afterwards;
        otherwise the entry is replaced atomically.
        """

    def bind(self, host: int, sender: Sender | None) -> None:
        """Set the sender that a port admits: at a switch the port of this host, at a host its own loop, which
        this call creates. None: no sender.
        """

    def tick(self, tick: Tick) -> None:
        """Make the place send a fragment's sum as it is, without the missing contributors, if the slot still
        waits for that fragment in the tick's generation; a late tick changes nothing. May be called at any
        time, from any thread. Raises TestbedError if the tree is not summed here.
        """

    def release(self, number: int, tree: int | None = None) -> None:
        """Remove the job's entries and groups, or those of one tree; does nothing if there are none. A packet
        in processing may still access the job's slots, but cannot add to those of their next holder, which
        has another generation.
        """

    def part(self, program: str) -> object | None:
        """Return a program's own part of this place, which only that program can use; None if it has none
        here. Without a lock.
        """


class HostPlace(SummingPlace, Protocol):
    """A place that is a host."""

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        """Set the destinations of copies of a tree's results, in place of a group: hosts, each by its own
        address, and with `own` the worker at this host, by its loop. Called before `admit`.
        """


class SummingSwitches(Protocol):
    """All switches of a testbed that sum."""

    @property
    def by_dpid(self) -> Mapping[Dpid, SummingPlace]:
        """Return each switch by its number."""

    def any_ended(self) -> bool:
        """Return whether a switch has ended and must be restarted."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The memory for a worker's results; its process must inherit the descriptors."""

    fd: int
    entries: int
    wake_fd: int
    lanes: int  # the most lanes of an entry


class Hosts(Protocol):
    """The hosts' end of a data plane, the same for all switches."""

    def attach(
        self,
        host: Host,
        job: int,
        generation: int,
        bases: Sequence[int],
        size: int,
        lanes: int,
        first: int = 0,
        port: int = spec.UDP_PORT,
    ) -> Ring:
        """Make a ring for the results of some trees of a job, tree after tree: results of tree `first` + t,
        with slots counted from `bases[t]`, start at entry t * size. Packets to that UDP port wake its worker.
        Raises TestbedError if the host has a ring for these trees, or one of another job.
        """

    def detach(self, host: Host, first: int = 0) -> None:
        """Remove the host's ring for the trees from `first` on."""

    def place(self, host: Host) -> HostPlace:
        """Return this host as a place; the same object each time."""
