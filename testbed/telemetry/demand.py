"""Compute a collective's demand: how many bytes it needs on which links, by where the job's sums are made.
Pure: formulas of docs/verdict.md.

Bytes are of whole frames, as links count them, without retransmitted frames and other jobs' frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from testbed.aggregation.forest import Forest
from testbed.telemetry.timelines import BESIDE, PULLED, PUSHED, Collective
from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.wire.spec import lanes_for, payload_bytes
from testbed.wire.transports import GLOO, SERVER
from testbed.wire.vector_chunks import chunk_of
from testbed.wire.votes import Ballot, is_carried

UP, DOWN = "up", "down"
_ETHERNET_BYTES, _UDP_BYTES, _TCP_BYTES = 14, 28, 52  # TCP: with time stamps, as Linux sends them
_GRADIENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """The paths of a job's sums: the workers' transport, their hosts by rank, the host of a parameter server,
    and the forest if the network sums.
    """

    transport: str
    hosts: tuple[str, ...]
    ps_host: str | None
    mtu: int
    forest: Forest | None = None
    lanes: int | None = None  # per packet; None: as many as the MTU allows

    @property
    def held(self) -> set[str]:
        """The hosts whose links belong to the job."""
        places = self.forest.hosts() if self.forest else ()
        return {
            *self.hosts,
            *([self.ps_host] if self.ps_host else []),
            *(addresses.host_name(*h) for h in places),
        }

    @property
    def is_owned(self) -> bool:
        """Return whether the sums go only to an owner, which sends to all workers."""
        return self.forest is not None and self.forest.owner is not None

    @property
    def width(self) -> int:
        """The lanes of each packet."""
        return self.lanes or lanes_for(self.mtu)


def unit_of(name: str) -> str:
    """Return the unit in the name of a host, an optical port, a pod's rack, or a link to the core."""
    return name.partition("h")[0].partition("o")[0].partition("r")[0].partition("c")[0]


def is_of_host(name: str) -> bool:
    """Return whether a link is a host's."""
    return "h" in name


def is_between_units(name: str) -> bool:
    """Return whether a link connects a unit to others: an optical one, or one to the core."""
    return "o" in name or "c" in name


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes in one direction of a host's link. They are sent as the workers in `sources` ask for the
    collective; if empty, once all have asked.
    """

    host: str
    direction: str
    bytes: float
    sources: tuple[int, ...] = ()

    @property
    def link(self) -> str:
        return f"{self.host} {self.direction}"


def needs(traffic: Traffic, collective: Collective) -> tuple[Need, ...]:
    """Return the needs of a collective. Collectives that gloo runs beside the job's own kind count with the
    least that each worker must receive.
    """
    workers, everybody = len(traffic.hosts), range(len(traffic.hosts))
    if traffic.is_owned and collective.kind != BESIDE:
        return tuple(_of_owner(traffic, collective))
    if not collective.summed:
        heard = collective.size_bytes * (workers - 1) / workers * tcp_framing(traffic.mtu)
        return tuple(Need(host, DOWN, heard) for host in traffic.hosts)
    size_bytes = worker_bytes(traffic, collective)
    if traffic.forest is not None:
        return tuple(
            need
            for number, fraction in enumerate(traffic.forest.fractions())
            for need in _of_tree(traffic.forest, number, fraction * size_bytes)
        )
    sent = [Need(traffic.hosts[worker], UP, size_bytes, (worker,)) for worker in everybody]
    sent += [Need(host, DOWN, size_bytes) for host in traffic.hosts]
    if traffic.transport == SERVER and traffic.ps_host is not None:
        sent.append(Need(traffic.ps_host, DOWN, workers * size_bytes, tuple(everybody)))
        sent.append(Need(traffic.ps_host, UP, workers * size_bytes))
    return tuple(sent)


def _of_owner(traffic: Traffic, collective: Collective) -> Iterator[Need]:
    """Yield the needs of a tree with an owner: what it sends is multicast, and what workers push is summed.
    Answers to calls count as nothing.
    """
    assert traffic.forest is not None
    assert traffic.forest.owner is not None
    owner, size_bytes = addresses.host_name(*traffic.forest.owner), _fragments_bytes(traffic, collective)
    if collective.kind == PULLED:
        yield Need(owner, UP, size_bytes)
        yield from (Need(host, DOWN, size_bytes) for host in traffic.hosts)
    elif collective.kind == PUSHED:
        yield from (Need(host, UP, size_bytes, (rank,)) for rank, host in enumerate(traffic.hosts))
        yield Need(owner, DOWN, size_bytes, tuple(range(len(traffic.hosts))))


def _fragments_bytes(traffic: Traffic, collective: Collective) -> float:
    """Compute the bytes of the frames that carry a vector over a tree with an owner, which has no votes."""
    lanes = -(-collective.size_bytes // _GRADIENT_BYTES)
    return float(-(-lanes // traffic.width) * frame_bytes(traffic.width))


def _of_tree(forest: Forest, number: int, size_bytes: float) -> Iterator[Need]:
    """Yield the needs of a tree in which `size_bytes` go up from each worker and down to each receiver. A
    host's sum of its own worker's values crosses no link.
    """
    top = forest.trees[number].top
    down = set(forest.workers)
    for node in top.nodes():
        host, ranks = node.place.at, tuple(node.ranks())
        remote = [rank for rank in node.workers if forest.workers[rank] != host]
        for rank in remote:
            yield Need(addresses.host_name(*forest.workers[rank]), UP, size_bytes, (rank,))
        if host is None:
            continue
        met = len(remote) + len(node.below)
        if met:
            yield Need(addresses.host_name(*host), DOWN, met * size_bytes, ranks)
        if node is not top:
            yield Need(addresses.host_name(*host), UP, size_bytes, ranks)
        copies = met if forest.trees[number].relayed else int(node is top)
        if copies:
            yield Need(addresses.host_name(*host), UP, copies * size_bytes)
        down = down - {host} if node is top else down | {host}
    for host in sorted(down):
        yield Need(addresses.host_name(*host), DOWN, size_bytes)


def crossing(traffic: Traffic, collective: Collective) -> dict[tuple[str, str], float]:
    """Return, by unit and direction (up: towards the optical switch), the least bytes of a collective that
    must cross the unit's optical links together. Assumes direct circuits: transit through other units is left
    out.
    """
    if not collective.summed and not (traffic.is_owned and collective.kind == PULLED):
        return {}
    flows, size_bytes = _flows(traffic), worker_bytes(traffic, collective)
    if collective.kind == PULLED:  # reversed, with a copy on each circuit
        flows = ((receiver, sender, sent, taken) for sender, receiver, sent, taken in flows)
    crossed: dict[tuple[str, str], float] = {}
    for sender, receiver, sent, taken in flows:
        if sender != receiver:
            crossed[sender, UP] = crossed.get((sender, UP), 0.0) + sent * size_bytes
            crossed[receiver, DOWN] = crossed.get((receiver, DOWN), 0.0) + taken * size_bytes
    return crossed


def between(traffic: Traffic, collective: Collective) -> dict[tuple[str, str], float]:
    """Return, by sending and receiving unit, the bytes of a collective that the receiver takes from the
    sender.
    """
    if not collective.summed and not (traffic.is_owned and collective.kind == PULLED):
        return {}
    size_bytes = worker_bytes(traffic, collective)
    taken_bytes: dict[tuple[str, str], float] = {}
    for sender, receiver, _, taken in _flows(traffic):
        way = (receiver, sender) if collective.kind == PULLED else (sender, receiver)
        if sender != receiver:
            taken_bytes[way] = taken_bytes.get(way, 0.0) + taken * size_bytes
    return taken_bytes


def _flows(traffic: Traffic) -> Iterator[tuple[str, str, float, float]]:
    """Yield the flows of a worker's bytes: sending unit, receiving unit, and the share of them that the first
    must send and the second takes. A tree's result is multiplied where circuits part, which may not be the
    unit that it comes from.
    """
    for stream in streams(traffic):
        home = stream.sender[0]
        units = sorted({unit for unit, _ in stream.receivers} - {home})
        for unit in units:
            sent = stream.share / len(units)
            yield addresses.unit_name(home), addresses.unit_name(unit), sent, stream.share


@dataclass(frozen=True, slots=True)
class Stream:
    """A share of a worker's bytes, sent by a host or switch once, and copied on the way to all receivers."""

    sender: Host
    receivers: tuple[Host, ...]
    share: float = 1.0


def streams(traffic: Traffic) -> Iterator[Stream]:
    """Yield the streams of a collective that the job's own kind of synchronisation sums."""
    if traffic.forest is not None:
        for number, fraction in enumerate(traffic.forest.fractions()):
            yield from _streams_of_tree(traffic.forest, number, fraction)
        return
    hosts = [_host_named(name) for name in traffic.hosts]
    if traffic.transport != SERVER or traffic.ps_host is None:  # a ring, in the order of ranks
        yield from (Stream(hosts[at - 1], (host,)) for at, host in enumerate(hosts))
        return
    server = _host_named(traffic.ps_host)
    for host in hosts:
        yield Stream(host, (server,))
        yield Stream(server, (host,))


def _streams_of_tree(forest: Forest, number: int, fraction: float) -> Iterator[Stream]:
    tree = forest.trees[number]
    ups = [
        (sender, (node.place.unit, node.place.host))
        for node in tree.top.nodes()
        for sender in (
            *(forest.workers[rank] for rank in node.workers),
            *((child.place.unit, child.place.host) for child in node.below),
        )
    ]
    yield from (Stream(sender, (receiver,), fraction) for sender, receiver in ups)
    if tree.owner is not None:
        return
    if tree.relayed:  # copies return along the paths of the contributions
        yield from (Stream(receiver, (sender,), fraction) for sender, receiver in ups)
        return
    yield Stream((tree.top.place.unit, tree.top.place.host), forest.workers, fraction)


@lru_cache(maxsize=4096)
def _host_named(name: str) -> Host:
    tor, _, number = name.partition("h")
    dpid = addresses.tor_named(tor)
    return addresses.tor_unit(dpid), addresses.in_rack(addresses.tor_rack(dpid), int(number))


def worker_bytes(traffic: Traffic, collective: Collective) -> float:
    """Compute the bytes that each worker sends for a sum, and receives; with an owner, one of the two."""
    if traffic.is_owned:
        return _fragments_bytes(traffic, collective)
    workers = len(traffic.hosts)
    if traffic.forest is not None:
        return float(pushed_frames(collective, workers, traffic.width) * frame_bytes(traffic.width))
    size_bytes = collective.size_bytes * tcp_framing(traffic.mtu)
    return size_bytes * 2 * (workers - 1) / workers if traffic.transport == GLOO else size_bytes


def tail(traffic: Traffic, collective: Collective) -> Need | None:
    """Return what a parameter server's link still has to carry once the server has received all of a
    collective: the sums of the last chunks.
    """
    if traffic.transport != SERVER or traffic.ps_host is None or not collective.summed:
        return None
    length = collective.size_bytes // _GRADIENT_BYTES
    chunk = min(length, chunk_of(length))
    return Need(traffic.ps_host, UP, len(traffic.hosts) * chunk * _GRADIENT_BYTES * tcp_framing(traffic.mtu))


def pushed_frames(collective: Collective, workers: int, lanes: int) -> int:
    """Count the frames that a worker pushes: votes, and one for each fragment, unless the vote carries all
    workers' values.
    """
    length = collective.size_bytes // _GRADIENT_BYTES
    if is_carried(length, workers, lanes):
        return 1
    return Ballot.of(workers, lanes).pages(length) - (-length // lanes)


def frame_bytes(lanes: int) -> int:
    """Compute the bytes of a gradient packet's frame."""
    return _ETHERNET_BYTES + _UDP_BYTES + payload_bytes(lanes)


def tcp_framing(mtu: int) -> float:
    """Compute the bytes on a link per payload byte of full segments, acknowledgements ignored."""
    return (_ETHERNET_BYTES + mtu) / (mtu - _TCP_BYTES)
