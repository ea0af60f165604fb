"""What became of flows, in numbers, and whether these can be trusted. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.flows.generators import ConstantStream, Generator, kind_of
from testbed.flows.schedule import TrafficFlow, asked_mbps
from testbed.messages.traffic import CompletionTimes, DatagramCounts, GeneratorTraffic, LateFlows

SMALL_BYTES, LARGE_BYTES = 100e3, 10e6
CLASSES = ("small", "medium", "large")
LATE_S = 1e-3  # and LATE_SHARE of the flow's own time: what is later changes it
LATE_SHARE = 0.05
MOST_LATE = 0.05  # the share of late flows with which a result can be trusted
FAST_SHARE = 0.1  # what is faster than the links allow by more than this is too fast
MOST_FAST = 0.05  # likewise, the share of flows that are too fast
MOST_BUSY = 0.9  # likewise, the share of the machine's processors that is used
_CARRIED = 0.95


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """What became of a flow; times are in s after the traffic's start, None: not reached. `in_time_bytes` are
    the bytes that the receiver got within the duration. A UDP flow's datagrams were `sent`, `received`, and
    came `again`.
    """

    started_s: float | None = None
    ended_s: float | None = None
    error: str | None = None
    in_time_bytes: int = 0
    sent: int = 0
    received: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A flow, its outcome, and the least time that its links allow, in s."""

    flow: TrafficFlow
    outcome: FlowOutcome
    ideal_s: float

    @property
    def time_s(self) -> float | None:
        """The completion time, from the moment at which the flow was due."""
        ended_s = self.outcome.ended_s
        return None if ended_s is None else ended_s - self.flow.start_s

    @property
    def size_class(self) -> str:
        size = self.flow.size
        return CLASSES[0] if size < SMALL_BYTES else CLASSES[2] if size > LARGE_BYTES else CLASSES[1]

    def late_s(self, wall_s: float) -> float:
        """Return how late it started; of a flow that never did, until the end."""
        started_s = self.outcome.started_s
        return max(0.0, (wall_s if started_s is None else started_s) - self.flow.start_s)

    def is_late(self, wall_s: float) -> bool:
        late_s, time_s = self.late_s(wall_s), self.time_s
        return late_s > max(LATE_S, LATE_SHARE * (time_s or 0.0))


def generator_traffic(
    generators: Sequence[Generator],
    records: Sequence[FlowRecord],
    rates_mbps: Mapping[str, float | None],
    seconds: float,
    scale: int,
) -> GeneratorTraffic:
    """Sum up the flows of these generators: of one, or of all."""
    asked = [asked_mbps(each, rates_mbps) for each in generators]
    known = [each for each in asked if each is not None]
    finished = [each for each in records if each.time_s is not None]
    failures = Counter(each.outcome.error for each in records if each.outcome.error is not None)
    timed = [each for each in finished if not _is_constant(each, generators)]
    datagrams = [each.outcome for each in records if each.flow.rate_mbps is not None]
    offered = math.fsum(each.flow.size for each in records)
    carried = math.fsum(each.outcome.in_time_bytes for each in records) * scale
    return GeneratorTraffic(
        kind=kind_of(generators[0]) if len(generators) == 1 else "all",
        flows=len(records),
        finished=len(finished),
        failed=failures.total(),
        unfinished=len(records) - len(finished) - failures.total(),
        failures=dict(failures),
        asked_mbps=round(math.fsum(known), 6) if len(known) == len(asked) else None,
        offered_mbps=round(offered * 8 / 1e6 / seconds, 6),
        carried_mbps=round(carried * 8 / 1e6 / seconds, 6),
        times=completion_times(timed),
        sizes={
            name: completion_times(of_class)
            for name in CLASSES
            if (of_class := [each for each in timed if each.size_class == name])
        },
        groups=group_times(records),
        datagrams=_datagram_counts(datagrams) if datagrams else None,
    )


def _is_constant(record: FlowRecord, generators: Sequence[Generator]) -> bool:
    """Return whether a flow lasts as long as the traffic, so that its time says nothing."""
    only = len(generators) == 1
    return isinstance(generators[0 if only else record.flow.generator], ConstantStream)


def completion_times(records: Sequence[FlowRecord]) -> CompletionTimes:
    """Sum up the times of finished flows."""
    times = sorted(each.time_s for each in records if each.time_s is not None)
    slowdowns = sorted(
        each.time_s / each.ideal_s for each in records if each.time_s is not None and each.ideal_s > 0
    )
    return CompletionTimes(
        count=len(times),
        median_ms=_in_ms(quantile(times, 0.5)),
        p99_ms=_in_ms(quantile(times, 0.99)),
        max_ms=_in_ms(quantile(times, 1.0)),
        median_slowdown=_rounded(quantile(slowdowns, 0.5)),
        p99_slowdown=_rounded(quantile(slowdowns, 0.99)),
    )


def group_times(records: Iterable[FlowRecord]) -> CompletionTimes | None:
    """Sum up the times of the groups of which all flows finished; None if there are no groups."""
    groups: dict[tuple[int, int], list[float | None]] = {}
    for each in records:
        if each.flow.group is not None:
            groups.setdefault((each.flow.generator, each.flow.group), []).append(each.time_s)
    whole = [[time for time in times if time is not None] for times in groups.values() if None not in times]
    times = sorted(map(max, whole))
    median_ms, p99_ms, max_ms = (_in_ms(quantile(times, share)) for share in (0.5, 0.99, 1.0))
    return CompletionTimes(len(times), median_ms, p99_ms, max_ms, None, None) if groups else None


def lateness(generators: Sequence[Generator], all_records: Sequence[FlowRecord], wall_s: float) -> LateFlows:
    """Count the flows that started late, but for streams, of which no start matters."""
    records = [each for each in all_records if not _is_constant(each, generators)]
    late = sum(each.is_late(wall_s) for each in records)
    worst_s = max((each.late_s(wall_s) for each in records), default=0.0)
    return LateFlows(late, round(late / max(1, len(records)), 6), round(1e3 * worst_s, 3))


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What decides whether the machine kept up: the share of its processors that was used, the datagrams that
    receivers did not read in time, and the share of the datagrams asked for that was sent.
    """

    cores_busy: float
    overrun: int
    sent_share: float


def too_fast(generators: Sequence[Generator], records: Sequence[FlowRecord]) -> int:
    """Count the flows that took less time than their links' rates allow, by more than FAST_SHARE."""
    timed = [each for each in records if not _is_constant(each, generators)]
    return sum(each.time_s is not None and each.time_s < (1 - FAST_SHARE) * each.ideal_s for each in timed)


def verdict(late: LateFlows, facts: MachineFacts, fast_share: float) -> tuple[bool, str]:
    """Judge whether completion times are the network's; return that, and a line that says so. `fast_share` is
    the share of flows that are too fast.
    """
    reasons = []
    if late.share > MOST_LATE:
        reasons.append(f"{late.share:.0%} of flows started late, by up to {late.worst_ms:.0f} ms")
    if fast_share > MOST_FAST:
        reasons.append(f"{fast_share:.0%} of flows took less time than their links allow")
    if facts.overrun:
        reasons.append(f"{facts.overrun} datagrams were lost at receivers that read too slowly")
    if facts.sent_share < _CARRIED:
        reasons.append(f"{facts.sent_share:.0%} of the datagrams were sent")
    if facts.cores_busy > MOST_BUSY:
        reasons.append(f"this machine's processors were {facts.cores_busy:.0%} busy")
    if reasons:
        return False, f"verdict: not trustworthy, because {'; '.join(reasons)}"
    words = f"{late.share:.1%} of flows started late, processors {facts.cores_busy:.0%} busy"
    return True, f"verdict: trustworthy: {words}"


def remarks(
    records: Sequence[FlowRecord], total: GeneratorTraffic, fast: int, sub_packet: int, scale: int
) -> tuple[str, ...]:
    """Return what a reader of the numbers must know: `fast` flows are too fast, and `sub_packet` flows have
    less than a packet here.
    """
    notes = []
    if fast:
        notes.append(
            f"{fast} of {len(records)} flows took less than {1 - FAST_SHARE:.0%} of the time that their "
            f"links allow: after a pause a link lets 2 ms of its rate through at once"
        )
    if scale > 1 and 10 * sub_packet > len(records):
        notes.append(
            f"{sub_packet} of {len(records)} flows are less than one packet at scale {scale}: their times "
            f"are a packet's"
        )
    if total.carried_mbps < _CARRIED * total.offered_mbps:
        notes.append(
            f"{total.carried_mbps:.4g} of {total.offered_mbps:.4g} Mb/s offered were carried within the "
            f"duration"
        )
    if total.datagrams and total.datagrams.lost:
        notes.append(f"{total.datagrams.lost} of {total.datagrams.sent} datagrams sent were lost")
    notes += [f"{count} flows failed: {reason}" for reason, count in total.failures.items()]
    return tuple(notes)


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the least value that at least this share of the sorted values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _datagram_counts(outcomes: Sequence[FlowOutcome]) -> DatagramCounts:
    sent, received = sum(each.sent for each in outcomes), sum(each.received for each in outcomes)
    return DatagramCounts(sent, received, max(0, sent - received), sum(each.again for each in outcomes))


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 6)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
