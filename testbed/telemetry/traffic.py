"""The traffic on a job's links that is not the job's, by protocol and port. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TCP = 6
PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 132: "SCTP"}


LEAST_BYTES = 10_000  # less is a ping, or a name that was looked up
EPHEMERAL = 32_768  # ports from here on are the kernel's to give, as gloo's connections have

Flow = tuple[str, str, int, int]  # sender and receiver by address, protocol, port


def grown(before: Iterable[Sequence[Any]], after: Iterable[Sequence[Any]]) -> dict[Flow, int]:
    """Return by how many bytes each flow grew between two answers of the controller."""
    then = {tuple(row[:4]): row[4] for row in before}
    flows = {}
    for *flow, count in after:
        source, goal, protocol, port = flow
        # one that was dropped from the map meanwhile began again
        since = then.get(tuple(flow), 0)
        if more := count - since if count >= since else count:
            flows[source, goal, protocol, port] = more
    return flows


def others(
    flows: Mapping[Flow, int],
    names: Mapping[str, str],
    own_hosts: Collection[str],
    own_ports: Collection[int],
    held: Collection[str],
    optical: Mapping[str, str],
) -> list[OthersTraffic]:
    """Return the traffic on a job's links that is not the job's, the most first. `names`: of hosts, by their
    addresses. Between `own_hosts` TCP is the job's on `own_ports` and on ports that the kernel gave. What
    hosts that other jobs `held` sent to each other is those jobs'. `optical`: by unit, a link to other units
    that the job used.
    """
    by_link: dict[tuple[str, int, int], int] = {}
    for (source, goal, protocol, port), count in flows.items():
        sender, receiver = names.get(source), names.get(goal)
        if sender is None or receiver is None or {sender, receiver} <= set(held):
            continue
        both = sender in own_hosts and receiver in own_hosts
        if both and protocol == _TCP and (port in own_ports or port >= EPHEMERAL):
            continue
        links = [host for host in (sender, receiver) if host in own_hosts]
        units = [host.partition("h")[0] for host in (sender, receiver)]
        if units[0] != units[1]:
            links += [optical[unit] for unit in units if unit in optical]
        for link in links:
            by_link[link, protocol, port] = by_link.get((link, protocol, port), 0) + count
    rows = [OthersTraffic(*key, count) for key, count in by_link.items() if count >= LEAST_BYTES]
    return sorted(rows, key=lambda each: (-each.bytes, each.link))


@dataclass(frozen=True, slots=True)
class OthersTraffic:
    """Bytes that crossed a link of the job's, headers included. `port`: the lower of the two; 0: the protocol
    has none.
    """

    link: str
    protocol: int
    port: int
    bytes: int

    def __str__(self) -> str:
        name = PROTOCOLS.get(self.protocol, f"IP protocol {self.protocol}")
        port = f", port {self.port}" if self.port else ""
        return f"{self.bytes / 1e6:.3g} MB on {self.link} ({name}{port})"
