"""A job's forest: which place sums which contributors, and where each sum goes. Pure.

A tree has a place at its top; a contributor of a place is a worker, by its rank, or another place. Trees have
any depth. A job that sends its fragments over several trees gives each tree a fraction of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from testbed.errors import RequestError
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.places import Host, Place, at_host, at_tor
from testbed.topology.units import Unit, UnitPair
from testbed.wire import spec

MAX_TREES = 256  # the header's field has eight bits


@dataclass(frozen=True, slots=True)
class Node:
    """A place of a tree, with its contributors: workers by rank, and the places below."""

    place: Place
    workers: tuple[int, ...] = ()
    below: tuple[Node, ...] = ()

    def nodes(self) -> Iterator[Node]:
        """Yield this node and all below it, each parent before its children."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.below))

    def ranks(self) -> list[int]:
        """Return the ranks of the workers that it sums, directly or through places below, in order."""
        return sorted(rank for node in self.nodes() for rank in node.workers)

    @property
    def number(self) -> int:
        """Return its number at its parent: the lowest rank that it sums."""
        return min(rank for node in self.nodes() for rank in node.workers)

    def heights(self) -> dict[Place, int]:
        """Return each place's height above the workers: 1 if only workers contribute."""
        heights: dict[Place, int] = {}
        for node in reversed(list(self.nodes())):  # children first
            heights[node.place] = 1 + max((heights[child.place] for child in node.below), default=0)
        return heights

    def above(self) -> dict[Place, Node]:
        """Return the parent node of each place below this one."""
        return {child.place: node for node in self.nodes() for child in node.below}


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree: the node at its top, and the weight that gives its share of the job's fragments
    (`Forest.fractions`).

    If it is `relayed`, results come down the way that contributions went up: each place sends a copy to each
    of its members. Then all places are hosts; otherwise the fabric replicates results.
    """

    top: Node
    weight: float = 1.0
    owner: Host | None = None  # the only receiver of the sums, which then sends to all workers; None: workers
    relayed: bool = False

    def node_of(self, rank: int) -> Node:
        """Return the node that a worker pushes to."""
        return next(node for node in self.top.nodes() if rank in node.workers)


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees of one job, and its workers' hosts by rank. Raises RequestError for an invalid forest."""

    workers: tuple[Host, ...]
    trees: tuple[Tree, ...]

    def __post_init__(self) -> None:
        if not self.trees or len(self.trees) > MAX_TREES:
            raise RequestError(f"a forest of {len(self.trees)} trees; 1 to {MAX_TREES} are accepted")
        if not 1 <= len(self.workers) <= spec.MAX_WORKERS:
            raise RequestError(
                f"a forest of {len(self.workers)} workers; a place takes up to {spec.MAX_WORKERS}"
            )
        if len(set(self.workers)) < len(self.workers):
            raise RequestError("a forest with two workers on one host; each worker has a host of its own")
        for number, tree in enumerate(self.trees):
            if not (math.isfinite(tree.weight) and tree.weight > 0):
                raise RequestError(f"tree {number}: a weight of {tree.weight}; a number above 0 is accepted")
            self._check(number, tree)

    def _check(self, number: int, tree: Tree) -> None:
        nodes = list(tree.top.nodes())
        for place, times in Counter(node.place for node in nodes).items():
            if times > 1:
                raise RequestError(f"tree {number}: {place} is in it {times} times; a place sums once")
        for node in nodes:
            if not node.workers and not node.below:
                raise RequestError(f"tree {number}: nothing contributes to {node.place}")
        ranks = Counter(rank for node in nodes for rank in node.workers)
        expected = range(len(self.workers))
        for rank in sorted({*ranks, *expected}):
            if rank not in expected:
                raise RequestError(f"tree {number}: worker {rank}; there are 0 to {len(self.workers) - 1}")
            if ranks[rank] != 1:
                raise RequestError(f"tree {number}: worker {rank} contributes {ranks[rank]} times, not once")
        if tree.relayed:
            self._check_relayed(number, tree)
        if tree.owner:
            self._check_owned(number, tree, tree.owner)

    def _check_relayed(self, number: int, tree: Tree) -> None:
        if tree.owner is not None:
            raise RequestError(f"tree {number}: relayed to an owner; results are relayed to every worker")
        places = {node.place for node in tree.top.nodes()}
        for node in tree.top.nodes():
            if node.place.is_switch:
                raise RequestError(f"tree {number}: {node.place} relays results; hosts alone are accepted")
            for rank in node.workers:
                host = at_host(self.workers[rank])
                if host in places - {node.place}:
                    raise RequestError(
                        f"tree {number}: worker {rank} is on {host}, which relays results, and contributes "
                        f"to {node.place}; to its own host is accepted"
                    )

    def _check_owned(self, number: int, tree: Tree, owner: Host) -> None:
        if len(self.trees) > 1:
            raise RequestError(f"tree {number} has an owner; a job's only tree is accepted to have one")
        if owner in self.workers:
            raise RequestError(
                f"tree {number}: its owner {at_host(owner)} is a worker, too; none is accepted"
            )
        for node in tree.top.nodes():
            if not node.place.is_switch:
                raise RequestError(
                    f"tree {number} has an owner, and {node.place} sums; switches alone are accepted"
                )
        if tree.top.place != at_tor(addresses.tor_of(*owner)):
            raise RequestError(
                f"tree {number}: its owner is {at_host(owner)}, and {tree.top.place} is its top; the owner's "
                f"switch is accepted"
            )

    @property
    def owner(self) -> Host | None:
        """The owner of the only tree, if it has one: it receives the sums instead of the workers."""
        return self.trees[0].owner

    @property
    def places(self) -> list[Place]:
        """All places of all trees, each once."""
        return sorted({node.place for tree in self.trees for node in tree.top.nodes()})

    @property
    def units(self) -> list[Unit]:
        """The units that have workers."""
        return sorted({unit for unit, _ in self.workers})

    @property
    def switches(self) -> set[Dpid]:
        """The switches at which the workers' hosts are."""
        return {addresses.tor_of(*host) for host in self.workers}

    def hosts(self) -> set[Host]:
        """Return all hosts that a job with this forest holds: of workers, of places, and of owners."""
        places = {place.at for place in self.places if place.at}
        owners = {tree.owner for tree in self.trees if tree.owner}
        return {*self.workers, *places, *owners}

    def fractions(self) -> tuple[float, ...]:
        """Return each tree's share of the fragments; they add up to 1."""
        total = sum(tree.weight for tree in self.trees)
        return tuple(tree.weight / total for tree in self.trees)

    def demands(self) -> tuple[UnitPair, ...]:
        """Return the pairs of units that the job's traffic joins, each pair once, in the order of the
        trees.
        """
        return joined_by(pair for tree in self.trees for pair in self._edges(tree))

    def _edges(self, tree: Tree) -> Iterator[UnitPair]:
        for node in tree.top.nodes():
            for rank in node.workers:
                yield self.workers[rank][0], node.place.unit
            for child in node.below:
                yield child.place.unit, node.place.unit

    def meeting(self) -> int:
        """Return how many packets of one fragment can meet in one queue on their way up, at most. At a host,
        everything that it does not send itself arrives on its one link, and as many copies leave on it if it
        relays. At a switch, everything from other units may arrive at one port; in a pod, so does everything
        from a rack, or from beyond the ToR.
        """
        inflows = [self._inflow(node) for tree in self.trees for node in tree.top.nodes()]
        return max([1, *inflows, *(self._through(tree) for tree in self.trees if tree.relayed)])

    def _through(self, tree: Tree) -> int:
        """Return how many packets of a fragment may leave a rack or unit by one port, or arrive there at one,
        if hosts push to hosts and get copies from them: as many go down as come up.
        """
        counts: Counter[tuple[Unit, int | None, bool]] = Counter()
        for node in tree.top.nodes():
            to = node.place.unit, node.place.host
            senders = [self.workers[rank] for rank in node.workers]
            for sender in [*senders, *((child.place.unit, child.place.host) for child in node.below)]:
                for end, leaves in ((sender, True), (to, False)):
                    if sender[0] != to[0]:
                        counts[end[0], None, leaves] += 1
                    if addresses.tor_of(*sender) != addresses.tor_of(*to):
                        counts[end[0], addresses.rack_of(end[1]), leaves] += 1
        return max(counts.values(), default=1)

    def _inflow(self, node: Node) -> int:
        workers = [self.workers[rank] for rank in node.workers]
        if not node.place.is_switch:
            return max(1, sum(host != node.place.at for host in workers) + len(node.below))
        senders = [*workers, *((child.place.unit, child.place.host) for child in node.below)]
        return max(Counter(_port(node.place, sender) for sender in senders).values())


def _port(switch: Place, sender: Host) -> Host | int | None:
    """Return a key for the port of a switch that leads to a host or place; None for all optical ports
    together, and for the uplink of a pod's ToR.
    """
    if addresses.tor_of(*sender) == switch.tor and addresses.place_in_rack(sender[1]):
        return sender
    return addresses.rack_of(sender[1]) if sender[0] == switch.unit and not switch.rack else None


def joined_by(pairs: Iterable[UnitPair]) -> tuple[UnitPair, ...]:
    """Return the pairs of two different units, each once whatever its order."""
    once: dict[frozenset[Unit], UnitPair] = {}
    for pair in pairs:
        if pair[0] != pair[1]:
            once.setdefault(frozenset(pair), pair)
    return tuple(once.values())


def by_unit(workers: Sequence[Host]) -> dict[Unit, tuple[int, ...]]:
    """Return the ranks of the workers in each unit."""
    units = sorted({unit for unit, _ in workers})
    return {unit: tuple(rank for rank, host in enumerate(workers) if host[0] == unit) for unit in units}


def meeting_switch(workers: Sequence[Host]) -> Place:
    """Return the lowest switch above the workers of one unit: their ToR or, for several racks of a pod, the
    pod switch. Raises RequestError if they are in several units.
    """
    switches = {addresses.tor_of(*host) for host in workers}
    units = {unit for unit, _ in workers}
    if len(units) != 1:
        raise RequestError(f"workers in {len(units)} units; the switch of one unit is asked for")
    return at_tor(switches.pop()) if len(switches) == 1 else Place(units.pop())


def below_top(workers: Sequence[Host], top: Place) -> Tree:
    """Make the tree in which each ToR sums its workers, each pod switch those of several racks, and `top`
    sums the result of each unit. If `top` is a switch, its own workers push to it, and it is the parent of
    the other ToRs in its unit; if all workers are at it, it is the whole tree.
    """
    at: dict[Dpid, list[int]] = {}
    for rank, host in enumerate(workers):
        at.setdefault(addresses.tor_of(*host), []).append(rank)
    here = at.pop(top.tor, []) if top.is_switch else []
    below: dict[Unit, list[Node]] = {}
    for dpid in sorted(at, key=at_tor):
        below.setdefault(addresses.tor_unit(dpid), []).append(Node(at_tor(dpid), tuple(at[dpid])))
    nodes = []
    for unit, tors in below.items():
        is_tops = top.is_switch and unit == top.unit
        nodes += tors if is_tops or len(tors) == 1 else [Node(Place(unit), (), tuple(tors))]
    return Tree(Node(top, tuple(here), tuple(nodes)))
