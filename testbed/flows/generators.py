"""The generators of a traffic file, and their reader. Pure. Bytes, rates and loads are those of the network
that a configuration declares, before the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from testbed.errors import RequestError
from testbed.flows.coflow_trace import Coflow
from testbed.flows.sizes import MOST_BYTES, SizeDistribution, read_sizes
from testbed.topology.fields import is_number, listed, mapping, shown

MOST_GENERATORS = 64
MOST_MBPS = 1e7
MOST_DSCP = 63
UNIFORM, PERMUTATION = "uniform", "permutation"
TCP, UDP = "tcp", "udp"
TRANSPORTS = (TCP, UDP)
Pairs: TypeAlias = tuple[tuple[str, str, float], ...]
Load: TypeAlias = Callable[[Path], tuple[Coflow, ...]]


@dataclass(frozen=True, slots=True)
class PoissonFlows:
    """Flows that arrive by a Poisson process: `per_s` of them, or so many that their bytes are the share
    `load` of their senders' links. `matrix` is UNIFORM, PERMUTATION, or pairs (from, to, weight). UDP flows
    are sent at `rate_mbps` each. Their senders mark packets with `dscp`.
    """

    sizes: SizeDistribution
    hosts: tuple[str, ...]
    matrix: str | Pairs
    load: float | None = None
    per_s: float | None = None
    rate_mbps: float | None = None
    dscp: int = 0


@dataclass(frozen=True, slots=True)
class IncastRounds:
    """`size` bytes from each sender to one host at the same moment, again every `every_ms`."""

    to: str
    senders: tuple[str, ...]
    size: int
    every_ms: float


@dataclass(frozen=True, slots=True)
class CoflowReplay:
    """The coflows of a trace, by arrival: times and bytes are multiplied by the scales. Rack r of the trace
    is host r of `hosts`, which is counted round.
    """

    trace: tuple[Coflow, ...]
    hosts: tuple[str, ...]
    time_scale: float
    bytes_scale: float


@dataclass(frozen=True, slots=True)
class ConstantStream:
    """Datagrams from one host to another at a constant rate, marked with `dscp`."""

    sender: str
    to: str
    rate_mbps: float
    dscp: int = 0


Generator: TypeAlias = PoissonFlows | IncastRounds | CoflowReplay | ConstantStream
KINDS: Mapping[str, tuple[str, ...]] = {
    "poisson": ("load", "flows_per_s", "sizes", "matrix", "hosts", "transport", "rate_mbps", "dscp"),
    "incast": ("to", "from", "bytes", "every_ms"),
    "coflows": ("trace", "hosts", "time_scale", "bytes_scale"),
    "constant": ("from", "to", "rate_mbps", "dscp"),
}
"""The keys of each kind of generator, beside `kind`."""
_NAMES: Mapping[type, str] = {
    PoissonFlows: "poisson", IncastRounds: "incast", CoflowReplay: "coflows", ConstantStream: "constant",
}  # fmt: skip


def kind_of(generator: Generator) -> str:
    return _NAMES[type(generator)]


class TrafficReader:
    """Reads the generators of a file. `named` has each host by all of its names, `hosts` all hosts in order,
    with the declared rates of their links; `load` reads a trace, whose path is below `folder`.
    """

    def __init__(
        self, hosts: Mapping[str, float | None], named: Mapping[str, str], folder: Path, load: Load
    ) -> None:
        self._hosts, self._named, self._folder, self._load = hosts, named, folder, load

    def read(self, data: Any, path: str) -> tuple[Generator, ...]:
        """Read a file's content. Raises RequestError for the first fault."""
        if not isinstance(data, list) or not 1 <= len(data) <= MOST_GENERATORS:
            raise RequestError(
                f"{path}: {shown(data)}; a list of 1 to {MOST_GENERATORS} generators like {{kind: incast, "
                f"to: u1h1, from: [u1h2], bytes: 100000, every_ms: 100}} is accepted"
            )
        return tuple(self._generator(each, f"{path}: [{number}]") for number, each in enumerate(data))

    def _generator(self, raw: Any, at: str) -> Generator:
        kind = raw.get("kind") if isinstance(raw, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            text = shown(raw if kind is None else kind)
            raise RequestError(f"{at}.kind: {text}; {listed(KINDS)} are accepted")
        data = mapping(raw, at, ("kind", *KINDS[kind]))
        if kind == "poisson":
            return self._poisson(data, at)
        if kind == "incast":
            return self._incast(data, at)
        if kind == "coflows":
            return self._coflows(data, at)
        sender, to = self._host(_needed(data, "from", at), f"{at}.from"), self._receiver(data, at)
        _differ((sender,), to, at)
        return ConstantStream(sender, to, _rate(data, at), _dscp(data, at))

    def _poisson(self, data: Mapping[str, Any], at: str) -> PoissonFlows:
        if ("load" in data) == ("flows_per_s" in data):
            raise RequestError(f"{at}: load or flows_per_s is accepted, one of the two")
        load = _number(data["load"], f"{at}.load", 1e-6, 1.0) if "load" in data else None
        per_s = _number(data["flows_per_s"], f"{at}.flows_per_s", 1e-6, 1e5) if load is None else None
        transport = data.get("transport", TCP)
        if transport not in TRANSPORTS:
            raise RequestError(f"{at}.transport: {shown(transport)}; {listed(TRANSPORTS)} are accepted")
        if transport == TCP and "rate_mbps" in data:
            raise RequestError(f"{at}.rate_mbps: it is accepted with transport: udp, whose flows need it")
        hosts, matrix = self._hosts_of(data, at), self._matrix(data, at)
        if not isinstance(matrix, str) and "hosts" in data:
            raise RequestError(f"{at}.hosts: it is accepted with a matrix that names no hosts itself")
        senders = hosts if isinstance(matrix, str) else tuple(dict.fromkeys(each for each, _, _ in matrix))
        if load is not None and (unshaped := [each for each in senders if self._hosts[each] is None]):
            raise RequestError(
                f"{at}.load: the link of {unshaped[0]} has no rate; flows_per_s is accepted there"
            )
        return PoissonFlows(
            sizes=read_sizes(_needed(data, "sizes", at), f"{at}.sizes"),
            hosts=hosts,
            matrix=matrix,
            load=load,
            per_s=per_s,
            rate_mbps=_rate(data, at) if transport == UDP else None,
            dscp=_dscp(data, at),
        )

    def _matrix(self, data: Mapping[str, Any], at: str) -> str | Pairs:
        raw = data.get("matrix", UNIFORM)
        if raw in (UNIFORM, PERMUTATION):
            return str(raw)
        if not isinstance(raw, list) or not raw or not all(map(_is_pair, raw)):
            raise RequestError(
                f"{at}.matrix: {shown(raw)}; {UNIFORM}, {PERMUTATION} or [[from, to, weight], "
                f"...] is accepted"
            )
        pairs = []
        for number, (sender, to, weight) in enumerate(raw):
            where = f"{at}.matrix[{number}]"
            pair = self._host(sender, where), self._host(to, where)
            _differ(pair[:1], pair[1], where)
            pairs.append((*pair, float(weight)))
        return tuple(pairs)

    def _incast(self, data: Mapping[str, Any], at: str) -> IncastRounds:
        to, raw = self._receiver(data, at), _needed(data, "from", at)
        if not isinstance(raw, list) or not raw:
            raise RequestError(f"{at}.from: {shown(raw)}; a list of hosts is accepted")
        senders = tuple(self._host(each, f"{at}.from") for each in raw)
        _differ(senders, to, at)
        size = _number(_needed(data, "bytes", at), f"{at}.bytes", 1, MOST_BYTES)
        every_ms = _number(_needed(data, "every_ms", at), f"{at}.every_ms", 0.1, 3.6e6)
        return IncastRounds(to, senders, round(size), every_ms)

    def _coflows(self, data: Mapping[str, Any], at: str) -> CoflowReplay:
        raw = _needed(data, "trace", at)
        if not isinstance(raw, str):
            raise RequestError(f"{at}.trace: {shown(raw)}; the name of a file is accepted")
        return CoflowReplay(
            trace=self._load(self._folder / raw),
            hosts=self._hosts_of(data, at),
            time_scale=_number(data.get("time_scale", 1), f"{at}.time_scale", 1e-9, 1e9),
            bytes_scale=_number(data.get("bytes_scale", 1), f"{at}.bytes_scale", 1e-9, 1e9),
        )

    def _hosts_of(self, data: Mapping[str, Any], at: str) -> tuple[str, ...]:
        raw = data.get("hosts")
        if raw is None:
            hosts = tuple(self._hosts)
        elif isinstance(raw, list):
            hosts = tuple(dict.fromkeys(self._host(each, f"{at}.hosts") for each in raw))
        else:
            raise RequestError(f"{at}.hosts: {shown(raw)}; a list of hosts is accepted")
        if len(hosts) < 2:
            raise RequestError(f"{at}.hosts: {listed(hosts) or 'none'}; two or more are accepted")
        return hosts

    def _receiver(self, data: Mapping[str, Any], at: str) -> str:
        return self._host(_needed(data, "to", at), f"{at}.to")

    def _host(self, raw: Any, at: str) -> str:
        if raw in self._hosts:
            return str(raw)
        name = self._named.get(raw.lower()) if isinstance(raw, str) else None
        if name is None:
            raise RequestError(f"{at}: {shown(raw)}; no such host; there are {listed(self._hosts)}")
        return name


def _needed(data: Mapping[str, Any], key: str, at: str) -> Any:
    if key not in data:
        raise RequestError(f"{at}.{key}: missing")
    return data[key]


def _number(raw: Any, at: str, low: float, high: float) -> float:
    if not is_number(raw) or not low <= raw <= high:
        raise RequestError(f"{at}: {shown(raw)}; a number from {low:g} to {high:g} is accepted")
    return float(raw)


def _rate(data: Mapping[str, Any], at: str) -> float:
    return _number(_needed(data, "rate_mbps", at), f"{at}.rate_mbps", 1e-3, MOST_MBPS)


def _dscp(data: Mapping[str, Any], at: str) -> int:
    raw = data.get("dscp", 0)
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= MOST_DSCP:
        raise RequestError(f"{at}.dscp: {shown(raw)}; a whole number from 0 to {MOST_DSCP} is accepted")
    return raw


def _is_pair(raw: Any) -> bool:
    return isinstance(raw, list) and len(raw) == 3 and is_number(raw[2]) and 0 < raw[2] < float("inf")


def _differ(senders: Sequence[str], to: str, at: str) -> None:
    if to in senders:
        raise RequestError(f"{at}: {to} to itself; two hosts are accepted")
