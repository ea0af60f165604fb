"""Identify the traffic on a job's links that is not the job's, by protocol and port. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from testbed.messages.result import OthersTraffic
from testbed.telemetry.demand import is_between_units, unit_of
from testbed.telemetry.network import LitNetwork, pair_of

_TCP = 6
LEAST_BYTES = 10_000  # less is a ping, or a name lookup
EPHEMERAL = 32_768  # the kernel assigns ports from here on, as to gloo's connections

Flow = tuple[str, str, int, int]  # sender and receiver by address, protocol, port
FlowBytes = tuple[str, str, int, int, int]


@dataclass(slots=True)
class SeenPorts:
    """The TCP ports of hosts that were observed: of a job's own processes, and of others'."""

    own: set[tuple[str, int]] = field(default_factory=set)
    others: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Owner:
    """A job's `hosts`, and the TCP `ports` that it was assigned; `seen` has the ports that its processes also
    used, and those of other processes there.
    """

    hosts: Collection[str]
    ports: Collection[int]
    seen: SeenPorts = field(default_factory=SeenPorts)

    def sent(self, sender: str, receiver: str, protocol: int, port: int) -> bool:
        """Return whether a flow, identified by its lower port, is the job's. It is if it is TCP between the
        job's hosts on an assigned port; or on a port that the job was seen to use or that the kernel assigns,
        unless another process was seen to use it at either end.
        """
        if protocol != _TCP or not {sender, receiver} <= set(self.hosts):
            return False
        if port in self.ports:
            return True
        ends = {(sender, port), (receiver, port)}
        return ends.isdisjoint(self.seen.others) and (port >= EPHEMERAL or not ends.isdisjoint(self.seen.own))


def grown(before: Iterable[FlowBytes], after: Iterable[FlowBytes]) -> dict[Flow, int]:
    """Return by how many bytes each flow grew between two answers of the controller."""
    then = {row[:4]: row[4] for row in before}
    flows = {}
    for row in after:
        flow, count = row[:4], row[4]
        # a flow that was evicted from the map meanwhile restarted at 0
        since = then.get(flow, 0)
        if more := count - since if count >= since else count:
            flows[flow] = more
    return flows


def others(
    flows: Mapping[Flow, int],
    names: Mapping[str, str],
    job: Owner,
    held: Collection[str],
    network: LitNetwork,
    links: Collection[str],
) -> list[OthersTraffic]:
    """Return the traffic on the `links` of a job that is not the job's, most first. `names`: of hosts, by
    address. Traffic between hosts that other jobs `held` belongs to those jobs.
    """
    strange: list[tuple[str, str, int, int, int]] = []
    for (source, goal, protocol, port), count in flows.items():
        sender, receiver = names.get(source), names.get(goal)
        if sender is None or receiver is None or {sender, receiver} <= set(held):
            continue
        if job.sent(sender, receiver, protocol, port):
            continue
        strange.append((sender, receiver, protocol, port, count))
    apart = {pair_of(unit_of(sender), unit_of(receiver)) for sender, receiver, *_ in strange}
    ways = network.ways(pair for pair in apart if pair[0] != pair[1])
    by_link: dict[tuple[str, int, int], tuple[int, int]] = {}
    for sender, receiver, protocol, port, count in strange:
        between = ways.get(pair_of(unit_of(sender), unit_of(receiver)), frozenset())
        for link in _crossed(sender, receiver).union(between).intersection(links):
            total, up = by_link.get((link, protocol, port), (0, 0))
            up += count * _sends(sender, link)
            by_link[link, protocol, port] = total + count, up
    rows = [OthersTraffic(*key, *counts) for key, counts in by_link.items() if counts[0] >= LEAST_BYTES]
    return sorted(rows, key=lambda each: (-each.bytes, each.link))


def _crossed(sender: str, receiver: str) -> set[str]:
    """Return the links of two hosts, and of their racks if these differ and are of pods."""
    racks = {host.partition("h")[0] for host in (sender, receiver)}
    return {sender, receiver} | ({rack for rack in racks if "r" in rack} if len(racks) > 1 else set())


def _sends(sender: str, link: str) -> bool:
    """Return whether a link is the sender's, its rack's or its unit's, so that its traffic goes up."""
    near = link in (sender, sender.partition("h")[0])
    return near or (is_between_units(link) and unit_of(link) == unit_of(sender))
