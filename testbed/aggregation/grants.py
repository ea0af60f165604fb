"""The resources that a job, or a group of its workers, holds at its places, and its workers' settings for
them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from testbed.aggregation.forest import Forest
from testbed.aggregation.place_interfaces import Ring
from testbed.aggregation.program import DataPlaneProgram, Grant
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.dataplanes import DATA_PLANES
from testbed.topology.places import Host, Place
from testbed.topology.units import Unit
from testbed.wire import spec
from testbed.wire.node_settings import OwnerTree
from testbed.wire.recovery import Recovery
from testbed.wire.settings import EndpointSettings, TreeSettings


@dataclass(frozen=True, slots=True)
class Group:
    """Some or all of a job's workers that sum among themselves: by number in the group, their ranks in the
    job, and the UDP ports that wake them.
    """

    ranks: tuple[int, ...]
    ports: tuple[int, ...]

    def __str__(self) -> str:
        return f"workers {', '.join(map(str, self.ranks))}"


@dataclass(slots=True)
class Admission:
    """The resources that a job, or a group of its workers, holds. `worker_env` and `worker_fds` are for a
    worker's process; `worker` is its number in the forest, which for a job is its rank.
    """

    job: int
    generation: int
    forest: Forest
    program: DataPlaneProgram
    grant: Grant
    lanes: int
    recovery: Recovery
    rate_mbps: float | None  # the rate of its hosts' slowest link
    queue_packets: int  # the length of each link's queue
    engines: Mapping[Unit, str]  # unit -> its switches' engine
    bases: dict[tuple[int, Place], int] = field(default_factory=dict)  # (tree, place) -> MemID
    programs: Mapping[str, str] = field(default_factory=dict)  # by engine
    first: int = 0  # the number of its first tree among the job's; the others follow
    group: Group | None = None  # None: it is the job's own
    # by tree: switch with an entry -> the devices that forward results, one of each tuple
    ways: list[dict[Dpid, tuple[tuple[str, ...], ...]]] = field(default_factory=list)
    summing: set[Host] = field(default_factory=set)  # hosts with an entry
    looped: set[Host] = field(default_factory=set)  # of these, the hosts where a worker pushes by the loop
    bound: set[Host] = field(default_factory=set)  # hosts that may send
    rings: dict[int, Ring] = field(default_factory=dict)  # by worker
    owners_ring: Ring | None = None  # the ring of the tree's owner, if it has one
    on_parallel: Callable[[bool], None] | None = None  # called with `is_parallel` when ways change

    @property
    def is_parallel(self) -> bool:
        """Return whether its results arrive over several parallel circuits, and so may overtake each
        other.
        """
        return any(len(bundle) > 1 for way in self.ways for bundles in way.values() for bundle in bundles)

    def subscribe_parallel(self, callback: Callable[[bool], None]) -> None:
        """Call `callback` with `is_parallel`, now and whenever ways change."""
        self.on_parallel = callback
        callback(self.is_parallel)

    def rank(self, worker: int) -> int:
        """Return the rank in the job of a worker of the forest; places identify it by that."""
        return self.group.ranks[worker] if self.group else worker

    def port(self, worker: int) -> int:
        """Return the UDP port that wakes a worker of the forest."""
        return self.group.ports[worker] if self.group else spec.UDP_PORT

    def result_base(self, tree: int) -> int:
        """Return the MemID at the top of a tree, where its results are made."""
        return self.bases[tree, self.forest.trees[tree].top.place]

    def worker_env(self, worker: int) -> EndpointSettings:
        """Make the settings of a worker's endpoint."""
        ring, host = self.rings[worker], self.forest.workers[worker]
        # all packets under way may meet in one queue, from every contributor of the place behind it
        queue_packets = max(1, self.queue_packets // self.forest.meeting()) if self.rate_mbps else None
        return EndpointSettings(
            engine=self.engines[host[0]],
            port=spec.UDP_PORT,
            job=self.job,
            generation=self.generation,
            worker=worker,
            sender=self.rank(worker),
            workers=len(self.forest.workers),
            lanes=self.lanes,
            recovery=self.recovery,
            slots=self.grant.size,
            vote_slots=self.grant.vote_slots,
            **self.grant.endpoint(),
            first_tree=self.first,
            trees=tuple(self._way_of(worker, tree) for tree in range(len(self.forest.trees))),
            rate_mbps=self.rate_mbps,
            queue_packets=queue_packets,
            ring_fd=ring.fd,
            ring_entries=ring.entries,
            ring_lanes=ring.lanes,
            wake_fd=ring.wake_fd,
        )

    def owner_env(self) -> OwnerTree:
        """Make the settings of the owner's end of the tree."""
        return OwnerTree(
            port=spec.UDP_PORT,
            job=self.job,
            generation=self.generation,
            workers=len(self.forest.workers),
            lanes=self.lanes,
            slots=self.grant.size,
            group=group_ip(self.job),
            rate_mbps=self.rate_mbps,
        )

    def _way_of(self, worker: int, tree: int) -> TreeSettings:
        place = self.forest.trees[tree].node_of(worker).place
        is_own = place.at == self.forest.workers[worker]
        return TreeSettings(
            address=addresses.LOOP_PLACE_IP if is_own else place.address,
            slot_base=self.bases[tree, place],
            fraction=self.forest.fractions()[tree],
            takes_empties=self._takes_empties(worker, place),
        )

    def _takes_empties(self, worker: int, place: Place) -> bool:
        """Return whether a worker may push without lanes to a place; its own switch parses the push first. A
        host that is a place has no room for the sum that such a push would complete.
        """
        engines = (self.engines[unit] for unit in (self.forest.workers[worker][0], place.unit))
        most = self.rings[worker].lanes
        if not self.grant.takes_empties:
            return False
        return place.is_switch and all(DATA_PLANES[engine].has_room_for(most) for engine in engines)

    def worker_fds(self, worker: int) -> list[int]:
        """Return the descriptors that `worker_env` names; the worker's process must inherit them."""
        return [self.rings[worker].fd, self.rings[worker].wake_fd]


def group_ip(job: int) -> str:
    """Return the destination address of a job's results: 239.192/14, the organization-local scope (RFC 2365),
    plus the job's number.
    """
    return f"{spec.GROUP_BYTE}.{192 + (job >> 16)}.{job >> 8 & 0xFF}.{job & 0xFF}"
