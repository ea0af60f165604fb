"""The result of `testbed traffic`: what flows were asked for, and what became of them. Rates and bytes are
those of the network that the configuration declares: this machine's, times the scale. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class CompletionTimes:
    """The completion times of finished flows, or of groups of them, and their slowdowns: the time over the
    one that the links allow to a flow alone. None where nothing finished, or groups have no slowdown.
    """

    count: int
    median_ms: Number | None
    p99_ms: Number | None
    max_ms: Number | None
    median_slowdown: Number | None
    p99_slowdown: Number | None


@dataclass(frozen=True, slots=True)
class DatagramCounts:
    """The datagrams of UDP flows. `lost` were sent and did not come; `again` came twice or more."""

    sent: int
    received: int
    lost: int
    again: int


@dataclass(frozen=True, slots=True)
class GeneratorTraffic:
    """The flows of a generator, or of all: how many there were, and how many finished, failed (their
    connection broke, for `failures`' reasons) or were unfinished at the end. `asked_mbps` is the load that
    the file asks for (None: it names none), `offered_mbps` that of the drawn flows, `carried_mbps` what
    receivers got within the duration. `sizes` has flows by size class. `groups` are rounds of an incast or
    coflows.
    """

    kind: str
    flows: int
    finished: int
    failed: int
    unfinished: int
    failures: dict[str, int]
    asked_mbps: Number | None
    offered_mbps: Number
    carried_mbps: Number
    times: CompletionTimes
    sizes: dict[str, CompletionTimes]
    groups: CompletionTimes | None
    datagrams: DatagramCounts | None


@dataclass(frozen=True, slots=True)
class LateFlows:
    """How late flows started after their time: `late` of them so late that it changes their completion time,
    `worst_ms` at most, `share` of all.
    """

    late: int
    share: Number
    worst_ms: Number


@dataclass(frozen=True, slots=True)
class TrafficEvent:
    """Something that happened to the network, `at_s` after the traffic's start."""

    at_s: Number
    text: str


@dataclass(frozen=True, slots=True)
class TrafficResult:
    """The traffic of a file on a testbed: `began` in seconds since 1970, for `seconds`, and `wall_s` until
    the last flow had ended or was given up. `too_fast` flows took less than 90 % of the time that their
    links allow: after a pause a link lets 2 ms of its rate through at once. `cores_busy` is the share of this
    machine's processors that was used, `agents_cpu_s` the senders' and receivers' own processor time.
    """

    file: str
    testbed: str
    scale: int
    seed: int
    began: Number
    seconds: Number
    wall_s: Number
    hosts: tuple[str, ...]
    total: GeneratorTraffic
    generators: tuple[GeneratorTraffic, ...]
    lateness: LateFlows
    too_fast: int
    cores_busy: Number
    agents_cpu_s: Number
    events: tuple[TrafficEvent, ...]
    notes: tuple[str, ...]
    trustworthy: bool
    verdict: str
