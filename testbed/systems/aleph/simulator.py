"""The large-scale simulation of section 6.4: draw workers and parameter servers in a data centre, and compute
the cost of an iteration's gradients under each scheme. Pure; seeds are arguments.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import networkx as nx

from testbed.errors import RequestError
from testbed.systems.aleph import baselines, fastest, mwcha
from testbed.systems.aleph.model import Clustering, Instance, capacities
from testbed.systems.aleph.near import nearer
from testbed.topology import datacenters

NIC_GBPS, SERVER_GBPS = 10.0, 10.0
SERVERS = 10
LEAST, MEAN, MOST = 0.1, 0.5, 0.9
"""A worker's available share of its NIC's rate: the mean of the normal distribution, and its limits."""
MEGABYTES = 97.0
OURS, MWCHA, PRINTED, PS, RING, BALANCED = "ours", "mwcha", "mwcha-printed", "ps", "ring", "balanced"
TITLES: Mapping[str, str] = {
    OURS: "ALEPH, our clusters",
    MWCHA: "ALEPH, M-WCHA",
    PRINTED: "ALEPH, M-WCHA as printed",
    PS: "BytePS",
    RING: "Horovod",
    BALANCED: "balanced (HiPS)",
}
FAT_TREE, LEAF_SPINE = TOPOLOGIES = ("fat-tree", "leaf-spine")
ANYBODY, RACK = REACHES = ("anybody", "rack")
PACKED, RANDOM = PLACES = ("packed", "random")


@dataclass(frozen=True, slots=True)
class Scene:
    """A setting of section 6.4. `reach`: the workers that a worker can head: any, or those at its edge
    switch. `place`: workers are placed rack by rack with the parameter servers in the last one, or at random.
    """

    workers: int = 100
    deviation: float = 0.1
    reach: str = ANYBODY
    place: str = PACKED

    def __post_init__(self) -> None:
        if self.reach not in REACHES:
            raise RequestError(f"reach {self.reach!r}: accepted are {', '.join(REACHES)}")
        if self.place not in PLACES:
            raise RequestError(f"place {self.place!r}: accepted are {', '.join(PLACES)}")
        if not 1 <= self.workers <= 290:
            raise RequestError(f"workers {self.workers}: 1 to 290 are accepted, of 300 servers")
        if not 0 <= self.deviation <= 1:
            raise RequestError(f"deviation {self.deviation:g}: 0 to 1 is accepted")


@dataclass(frozen=True, slots=True)
class Iteration:
    """The figures of one run, for one iteration. `value` is the swept one.

    `workers_gbps` and `servers_gbps` are the rates at which all of them together receive gradients, or sums;
    `overhead_gb` is the traffic of all links together, as the paper counts it: pushes, and both phases of a
    ring; `both_ways_gb` includes the results' way back. `hops` is the mean number of switches on a vector's
    path to its aggregator; around a ring a vector is sent n - 1 times.
    """

    topology: str
    value: float
    scheme: str
    seed: int
    workers_gbps: float
    servers_gbps: float
    all_gbps: float
    time_s: float
    contributors: int
    overhead_gb: float
    both_ways_gb: float
    hops: float


class World:
    """The workers and parameter servers of one seed in a data centre, with the paths between them."""

    def __init__(self, topology: str, setting: Scene, seed: int) -> None:
        self.topology, self.setting, self.seed = topology, setting, seed
        edges, self._links = _data_center(topology)
        places = list(edges)[::-1]
        if setting.place == RANDOM:
            random.Random(f"places {seed}").shuffle(places)
        ratios = random.Random(f"rates {seed}")
        drawn = [ratios.gauss(0.0, 1.0) for _ in range(setting.workers)]
        rates = tuple(NIC_GBPS * min(MOST, max(LEAST, MEAN + setting.deviation * at)) for at in drawn)
        self.servers = [edges[place] for place in places[:SERVERS]]
        self.workers = [edges[place] for place in places[::-1][: setting.workers]]
        near = None
        if setting.reach == RACK:
            near = tuple(
                frozenset(other for other, at in enumerate(self.workers) if at == edge and other != worker)
                for worker, edge in enumerate(self.workers)
            )
        self.instance = Instance(rates, capacities(rates), (SERVER_GBPS,) * SERVERS, near)

    def measured(self, scheme: str, value: float) -> Iteration:
        """Compute the figures of a scheme."""
        if scheme == RING:
            return self._ring(value)
        clustering = self._clustering(scheme)
        time = clustering.time(self.instance)
        loads, count = clustering.loads(), len(clustering.contributors)
        links = switches = 0.0
        for worker, head in enumerate(clustering.head):
            ways = [self.workers[head]] if head != worker else self.servers
            links += sum(self.links(self.workers[worker], way) for way in ways) / len(ways)
            switches += sum(self.links(self.workers[worker], way) - 1 for way in ways) / len(ways)
        return Iteration(
            self.topology,
            value,
            scheme,
            self.seed,
            workers_gbps=sum(loads) / time,
            servers_gbps=count / time,
            all_gbps=(sum(loads) + count) / time,
            time_s=time * MEGABYTES * 8e-3,
            contributors=count,
            overhead_gb=links * MEGABYTES / 1e3,
            both_ways_gb=2 * links * MEGABYTES / 1e3,
            hops=switches / len(loads),
        )

    def _clustering(self, scheme: str) -> Clustering:
        """Compute the clusters of a scheme. ALEPH's members are reassigned to near heads: the paper has them
        at one gradient hop, although algorithm 1 draws them at random.
        """
        draws = random.Random(f"clusters {self.seed}")
        if scheme == BALANCED:
            return baselines.balanced(self.instance)
        if scheme == PS:
            return baselines.none(self.instance)
        if scheme == OURS:
            clustering = fastest.cluster(self.instance)
        else:
            variant = mwcha.PRINTED if scheme == PRINTED else mwcha.REPAIRED
            clustering = mwcha.cluster(self.instance, draws, variant)
        if self.setting.reach == RACK:
            return clustering
        return nearer(clustering, lambda a, b: self.links(self.workers[a], self.workers[b]))

    def _ring(self, value: float) -> Iteration:
        """Compute the figures of a ring in the order of edge switches, the shortest possible ring."""
        size = self.instance.size
        order = sorted(self.workers)
        ways = [self.links(edge, after) for edge, after in zip(order, [*order[1:], order[0]], strict=True)]
        ways = ways if size > 1 else [0]
        slowest = min(self.instance.rates)
        carried = 2 * (size - 1) / size * sum(ways) * MEGABYTES / 1e3
        return Iteration(
            self.topology,
            value,
            RING,
            self.seed,
            workers_gbps=size * slowest,
            servers_gbps=0.0,
            all_gbps=size * slowest,
            time_s=baselines.ring_time(self.instance) * MEGABYTES * 8e-3,
            contributors=0,
            overhead_gb=carried,
            both_ways_gb=carried,
            hops=(size - 1) * (sum(ways) / size - 1),
        )

    def links(self, edge: str, other: str) -> int:
        """Count the links between two servers at these edge switches; switches on the path are one fewer."""
        return 2 + self._links[edge][other]


@functools.cache
def _data_center(topology: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Return the edge switch of each server, and the number of links between each two edge switches."""
    if topology not in TOPOLOGIES:
        raise RequestError(f"topology {topology!r}: accepted are {', '.join(TOPOLOGIES)}")
    graph = datacenters.fat_tree() if topology == FAT_TREE else datacenters.leaf_spine()
    edges = datacenters.layer_of(graph, datacenters.EDGE)
    at = {server: next(iter(graph[server])) for server in datacenters.layer_of(graph, datacenters.SERVER)}
    lengths = {edge: nx.single_source_shortest_path_length(graph, edge) for edge in edges}
    return at, {edge: {other: lengths[edge][other] for other in edges} for edge in edges}


def swept(setting: Scene, sweep: str, value: float) -> Scene:
    """Return the setting with `workers` or `deviation` replaced by the swept value."""
    if sweep == "workers":
        return replace(setting, workers=round(value))
    return replace(setting, deviation=value)
