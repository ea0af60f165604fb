"""The interfaces of what sums, as admission sees it: a place, whatever it is made of, and the hosts' end of a
data plane. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.aggregation.entries import Entry, Sender, Tick
from testbed.topology.addresses import Dpid
from testbed.topology.places import Host
from testbed.wire import spec


class SummingPlace(Protocol):
    """A place that sums, whatever it is made of. `number` is a job's."""

    @property
    def slots(self) -> int:
        """Return how many it has for jobs; it has GROUP_SLOTS behind them for groups."""

    def set_group(
        self, number: int, tree: int, devices: Sequence[str], bundles: Sequence[Sequence[str]] = ()
    ) -> None:
        """Set the devices by which the results of a job's tree leave: by all of `devices`, and by one of each
        of `bundles`, the devices of parallel circuits. Called before `admit`. A result leaves by the ports of
        before or by those of now.
        """

    def admit(self, number: int, entry: Entry) -> None:
        """Puts the entry of a job's tree. If it is new here, its segment's slots are empty afterwards; else
        the entry is replaced in one step.
        """

    def bind(self, host: int, sender: Sender | None) -> None:
        """Set who may send gradients to it: at a switch by the port of this host, at a host by its own loop,
        which is there from then on. None: nobody.
        """

    def tick(self, tick: Tick) -> None:
        """Have the place send the sum of a fragment as it is, without those who have not contributed, if the
        slot still waits for that fragment in the tick's generation: a tick that comes too late changes
        nothing. Called beside all the others, from any thread. TestbedError if the tree is not summed here.
        """

    def release(self, number: int, tree: int | None = None) -> None:
        """Takes the job's entries and groups away, or those of one tree; nothing if there are none. A packet
        already being worked on may still touch the job's slots: whoever has them next is of another
        generation, which it cannot add to.
        """

    def part(self, program: str) -> object | None:
        """Return a program's own part of this place, which that program knows how to ask; None where it has
        none here. Without a lock.
        """


class HostPlace(SummingPlace, Protocol):
    """A place that is a host."""

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        """Set whom the results of a job's tree are copied for, in place of a group: hosts, each by its own
        address, and with `own` the worker at this host, by its loop. Called before `admit`.
        """


class SummingSwitches(Protocol):
    """All switches of a testbed that sum."""

    @property
    def by_dpid(self) -> Mapping[Dpid, SummingPlace]:
        """Return each by its number."""

    def any_ended(self) -> bool:
        """Say whether one ended that is to be started again."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The memory that a worker's results are written into: descriptors, to be inherited by its process."""

    fd: int
    entries: int
    wake_fd: int
    lanes: int  # that an entry has room for


class Hosts(Protocol):
    """The hosts' end, the same whatever their switch is."""

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
        """A ring for the results of some trees of a job, tree after tree: those of tree `first` + t, whose
        slots count from `bases[t]`, are at t * size and behind. Its worker is woken by that UDP port.
        TestbedError if the host has one for these trees, or one of another job.
        """

    def detach(self, host: Host, first: int = 0) -> None:
        """Takes the host's ring for the trees from `first` on back."""

    def place(self, host: Host) -> HostPlace:
        """Return the place that this host is; the same object each time."""
