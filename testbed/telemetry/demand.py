"""How many bytes a collective needs on which links, by the kind of synchronisation. Pure: formulas of
docs/verdict.md.

Bytes are of whole frames, as links count them. Frames that were sent again, or that other jobs sent, are no
part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.contract.spec import lanes_for, payload_bytes
from testbed.telemetry.timelines import Collective

UP, DOWN = "up", "down"
_ETHERNET_BYTES, _UDP_BYTES, _TCP_BYTES = 14, 28, 52  # TCP: with time stamps, as Linux sends them
_VOTE_LENGTHS = 2  # lanes of a vote before a small vector's values (docs/protocol.md)
_PS_PARTS, _PS_LEAST, _PS_MOST = (
    32,
    2048,
    65536,
)  # a parameter server's chunks, in gradients (workloads/ps_client.py)
_GRADIENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """Where a job's sums go: its kind of synchronisation, its workers' hosts by rank, the host where partial
    sums or vectors meet.
    """

    sync: str
    hosts: tuple[str, ...]
    ps_host: str | None
    mtu: int

    @property
    def units(self) -> int:
        return len({unit_of(host) for host in self.hosts})


def unit_of(name: str) -> str:
    """The unit of a host or of an optical port."""
    return name.partition("h")[0].partition("o")[0]


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes in a direction of a host's link, and the workers whose asking lets them go; none: they go when
    all have asked.
    """

    host: str
    direction: str
    bytes: float
    sources: tuple[int, ...] = ()

    @property
    def link(self) -> str:
        return f"{self.host} {self.direction}"


def needs(traffic: Traffic, collective: Collective) -> tuple[Need, ...]:
    """Of a collective. One that gloo does beside the job's own kind counts as what each worker must at least
    be told of it.
    """
    workers, everybody = len(traffic.hosts), range(len(traffic.hosts))
    if not collective.summed:
        heard = collective.size_bytes * (workers - 1) / workers * tcp_framing(traffic.mtu)
        return tuple(Need(host, DOWN, heard) for host in traffic.hosts)
    size_bytes = _worker_bytes(traffic, collective)
    found = [Need(traffic.hosts[worker], UP, size_bytes, (worker,)) for worker in everybody]
    found += [Need(host, DOWN, size_bytes) for host in traffic.hosts]
    if traffic.ps_host is not None:
        met = workers if traffic.sync == "ps" else traffic.units
        found.append(Need(traffic.ps_host, DOWN, met * size_bytes, tuple(everybody)))
        found.append(Need(traffic.ps_host, UP, (workers if traffic.sync == "ps" else 1) * size_bytes))
    return tuple(found)


def crossing(traffic: Traffic, collective: Collective) -> dict[tuple[str, str], float]:
    """By unit and direction (up: to the optical switch), the bytes of a collective that must cross its
    optical links at least, whichever of them; of direct circuits, for what only passes through a unit is left
    out.
    """
    if not collective.summed:
        return {}
    size_bytes = _worker_bytes(traffic, collective)
    units = [unit_of(host) for host in traffic.hosts]
    found: dict[tuple[str, str], float] = {}
    for sender, receiver, sent in _flows(traffic, units):
        if sender != receiver:
            found[sender, UP] = found.get((sender, UP), 0.0) + sent * size_bytes
            found[receiver, DOWN] = found.get((receiver, DOWN), 0.0) + size_bytes
    return found


def _flows(traffic: Traffic, units: Sequence[str]) -> list[tuple[str, str, float]]:
    """From which unit to which a worker's bytes go, and how often the first must send them: a result of inc
    is multiplied where circuits part, perhaps not in the unit that it comes from.
    """
    if traffic.ps_host is None:  # a ring, in the order of ranks
        return [(units[at - 1], unit, 1.0) for at, unit in enumerate(units)]
    home = unit_of(traffic.ps_host)
    if traffic.sync == "ps":
        return [flow for unit in units for flow in ((unit, home, 1.0), (home, unit, 1.0))]
    others = [unit for unit in dict.fromkeys(units) if unit != home]
    return [flow for unit in others for flow in ((unit, home, 1.0), (home, unit, 1 / len(others)))]


def _worker_bytes(traffic: Traffic, collective: Collective) -> float:
    """What each worker sends of a sum, and takes."""
    workers = len(traffic.hosts)
    if traffic.sync == "inc":
        return float(pushed_frames(collective, workers, traffic.mtu) * frame_bytes(traffic.mtu))
    size_bytes = collective.size_bytes * tcp_framing(traffic.mtu)
    return size_bytes * 2 * (workers - 1) / workers if traffic.sync == "ring" else size_bytes


def tail(traffic: Traffic, collective: Collective) -> Need | None:
    """What a parameter server's link must still carry when it has taken all of a collective: the sums of the
    last chunks.
    """
    if traffic.sync != "ps" or traffic.ps_host is None or not collective.summed:
        return None
    length = collective.size_bytes // _GRADIENT_BYTES
    chunk = min(length, max(_PS_LEAST, min(_PS_MOST, -(-length // _PS_PARTS))))
    return Need(traffic.ps_host, UP, len(traffic.hosts) * chunk * _GRADIENT_BYTES * tcp_framing(traffic.mtu))


def pushed_frames(collective: Collective, workers: int, mtu: int) -> int:
    """The vote's, and a frame for each fragment, unless the vote carries all workers' values."""
    length, lanes = collective.size_bytes // _GRADIENT_BYTES, lanes_for(mtu)
    return 1 if length * workers + _VOTE_LENGTHS <= lanes else 1 - (-length // lanes)


def frame_bytes(mtu: int) -> int:
    """Of a gradient packet."""
    return _ETHERNET_BYTES + _UDP_BYTES + payload_bytes(lanes_for(mtu))


def tcp_framing(mtu: int) -> float:
    """Bytes on a link for each byte that full segments carry; acknowledgements left aside."""
    return (_ETHERNET_BYTES + mtu) / (mtu - _TCP_BYTES)
