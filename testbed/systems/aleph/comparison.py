"""A comparison of ALEPH's clustering methods: their clusters, and the time that links allow."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.aggregation.site import declared_site
from testbed.errors import TestbedError
from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.systems.aleph import baselines, clusterings
from testbed.systems.aleph.clusterings import Way
from testbed.systems.aleph.model import Instance
from testbed.systems.aleph.site import instance_at
from testbed.telemetry.demand import frame_bytes, tcp_framing
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host
from testbed.wire import spec
from testbed.wire.spec import lanes_for
from testbed.wire.votes import Ballot


@dataclass(frozen=True, slots=True)
class ClusterHost:
    """A host of a worker or a parameter server. `capacity`, for a worker only: how many members it may
    head.
    """

    name: str
    rate_mbps: Number | None
    capacity: int | UnsetType = UNSET

    def in_words(self) -> str:
        rate = self.rate_mbps
        return f"{self.name} {'unshaped' if rate is None else f'{rate / 1e3:g} Gb/s'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMethod:
    """The clusters of a method's first run, as each rank's `head`, and the mean values of its runs; a ring
    has only a time, and a method that failed only its error.

    `above_capacity` lists the heads with too many members; `above_server` is the most contributors that the
    parameter server takes, if the method has more; `runs_ms` are the times of several runs.
    """

    name: str
    title: str
    failed: str | UnsetType = UNSET
    contributors: float | UnsetType = UNSET
    head: tuple[int, ...] | UnsetType = UNSET
    above_capacity: tuple[int, ...] | UnsetType = UNSET
    above_server: int | UnsetType = UNSET
    ms: float | UnsetType = UNSET
    server_ms: float | UnsetType = UNSET
    runs_ms: tuple[float, ...] | UnsetType = UNSET

    def line(self) -> str:
        """Format for printing."""
        line = f"{self.name:<15}{self.title:<36}"
        if self.ms is UNSET:
            return f"{line}{'-':>9}  {self.failed}"
        line += f"{self.ms:>9.1f}"
        if self.server_ms is UNSET or self.contributors is UNSET:
            return line
        return f"{line}  {self.server_ms:>10.1f}  {self.contributors:>12g}{self._note()}"

    def _note(self) -> str:
        runs = self.runs_ms or ()
        notes = [f"{len(runs)} runs, {min(runs):.1f} to {max(runs):.1f}"] if runs else []
        if self.above_capacity:
            notes.append("heads above the paper's capacities")
        if self.above_server:
            notes.append(f"the parameter server takes {self.above_server}: no job can have it")
        return f"  ({'; '.join(notes)})" if notes else ""


@dataclass(frozen=True, slots=True)
class ComparedClusters:
    """The clusters by each method. `framing`: bytes on a link per byte of gradients."""

    configuration: str
    workers: tuple[ClusterHost, ...]
    servers: tuple[ClusterHost, ...]
    megabytes: float
    framing: float
    methods: tuple[ClusterMethod, ...]

    def lines(self) -> Sequence[str]:
        """Format for printing."""
        workers = [worker.name for worker in self.workers]
        lines = [
            f"{len(workers)} workers: {', '.join(worker.in_words() for worker in self.workers)}",
            f"parameter server: {', '.join(server.in_words() for server in self.servers)}",
            f"{self.megabytes:g} MB of gradients an iteration, {self.framing - 1:.1%} more with "
            "headers and votes, as links and circuits of the declared rates allow:",
            "",
            f"{'':<15}{'':<36}{'ms':>9}  {'server, ms':>10}  {'contributors':>12}",
            *(method.line() for method in self.methods),
        ]
        for method in self.methods:
            if method.head is not UNSET:
                lines += ["", f"{method.name}:", *_clusters(method.head, workers)]
        return lines


def compare(
    topology: Topology, workers: Sequence[Host], servers: Sequence[Host], options: argparse.Namespace
) -> ComparedClusters:
    """Cluster the workers by each method; see `Clusterer.report`."""
    megabytes: float = options.megabytes
    site = declared_site(topology)
    chosen = list(servers) or [site.server(workers)]
    instance = instance_at(site, workers, chosen)
    ways = clusterings.WAYS | (clusterings.OPTIMA if options.optimum else {})
    framing = _framing(topology, len(workers), megabytes)
    megabits = 8 * megabytes * framing
    rows = [
        _tried(name, ways[name], (instance, megabits), seeds)
        for name in ways
        for seeds in [range(options.seed, options.seed + (20 if name.startswith("mwcha") else 1))]
    ]
    ring_ms = _ms(baselines.ring_time(instance), 8 * megabytes * tcp_framing(topology.mtu))
    return ComparedClusters(
        configuration=topology.name,
        workers=tuple(_host(topology, host, instance.capacities[at]) for at, host in enumerate(workers)),
        servers=tuple(_host(topology, host) for host in chosen),
        megabytes=megabytes,
        framing=round(framing, 6),
        methods=(*rows, ClusterMethod(name=clusterings.RING, title="a ring, no server", ms=ring_ms)),
    )


def _framing(topology: Topology, workers: int, megabytes: float) -> float:
    """Compute the bytes on a link per byte of gradients, with headers and votes on scales."""
    lanes = lanes_for(topology.mtu)
    length = max(1, round(megabytes * 1e6 / topology.scale / 4))
    voters = min(workers, spec.MAX_WORKERS)
    frames = Ballot.of(voters, lanes).pages(length) - (-length // lanes)
    return frames * frame_bytes(lanes) / (4 * length)


def _tried(name: str, way: Way, task: tuple[Instance, float], seeds: Sequence[int]) -> ClusterMethod:
    """Run a method with these seeds on an instance whose vectors have so many megabits."""
    instance, megabits = task
    try:
        runs = [way.cluster(instance, seed) for seed in seeds]
    except TestbedError as error:
        return ClusterMethod(name=name, title=way.title, failed=str(error))
    first = runs[0]
    times = [run.time(instance) for run in runs]
    contributors = statistics.fmean(len(run.contributors) for run in runs)
    return ClusterMethod(
        name=name,
        title=way.title,
        contributors=contributors,
        head=tuple(first.head),
        above_capacity=tuple(
            head for head, members in first.clusters.items() if len(members) > instance.capacities[head]
        ),
        above_server=instance.contributors if contributors > instance.contributors else UNSET,
        ms=_ms(statistics.fmean(times), megabits),
        server_ms=_ms(statistics.fmean(run.server_time(instance) for run in runs), megabits),
        runs_ms=tuple(_ms(time, megabits) for time in times) if len(times) > 1 else UNSET,
    )


def _ms(time: float, megabits: float) -> float:
    """Convert the time of a unit vector to milliseconds for a vector of so many megabits."""
    return round(time * megabits * 1e3, 3)


def _host(topology: Topology, host: Host, capacity: int | UnsetType = UNSET) -> ClusterHost:
    return ClusterHost(addresses.host_name(*host), topology.host(*host).rate_mbps, capacity)


def _clusters(head: Sequence[int], workers: Sequence[str]) -> list[str]:
    said = []
    for leader in sorted(set(head)):
        members = [workers[at] for at, its in enumerate(head) if its == leader and at != leader]
        if members:
            said.append(f"  {workers[leader]} heads {' '.join(members)}")
    heads = {leader for at, leader in enumerate(head) if at != leader}
    alone = [workers[at] for at, its in enumerate(head) if its == at and at not in heads]
    return [*said, *([f"  by themselves: {' '.join(alone)}"] if alone else [])]
