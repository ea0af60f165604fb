"""How many bytes a collective needs on which links, by the kind of synchronisation. Pure: formulas of
docs/verdict.md.

Bytes are of whole frames, as links count them. Frames that were sent again, or that other jobs sent, are no
part of it.
"""

from __future__ import annotations

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
        return len({host.partition("h")[0] for host in self.hosts})


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
    size_bytes = collective.size_bytes * tcp_framing(traffic.mtu)
    if traffic.sync == "inc":
        size_bytes = float(pushed_frames(collective, workers, traffic.mtu) * frame_bytes(traffic.mtu))
    elif traffic.sync == "ring":
        size_bytes *= 2 * (workers - 1) / workers
    found = [Need(traffic.hosts[worker], UP, size_bytes, (worker,)) for worker in everybody]
    found += [Need(host, DOWN, size_bytes) for host in traffic.hosts]
    if traffic.ps_host is not None:
        met = workers if traffic.sync == "ps" else traffic.units
        found.append(Need(traffic.ps_host, DOWN, met * size_bytes, tuple(everybody)))
        found.append(Need(traffic.ps_host, UP, (workers if traffic.sync == "ps" else 1) * size_bytes))
    return tuple(found)


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
