"""The verdict: whether the emulation, and not the machine under it, set a result. Pure.

A reason makes a result not trustworthy; a note is what a reader should know and may be by design, as drops at a finite queue are.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from testbed.telemetry.evidence import Evidence, LinkUse, Second


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still trusted. How they were measured: docs/architecture.md, Telemetry and verdict."""

    full_link: float = 0.95  # of its rate: such a link set the pace of that second, whatever the cores did
    saturated_busy: float = 0.97  # a core that was busier than this in a second had no time left
    pressed_share: float = 0.10  # of the seconds with traffic
    softirq: float = 0.80  # of a core's time: packets take the core from the processes that send them
    steal: float = 0.05  # of a core's time
    waiting: float = 0.90  # of the time
    late_s: float = 0.02  # a sample this late was late
    late_share: float = 0.05  # of the samples
    unsampled_share: float = 0.05  # of the time
    excess: float = 0.03  # over a link's rate
    lost_share: float = 1e-4  # of the frames, where no queue was full


@dataclass(frozen=True, slots=True)
class Reason:
    """`name` is for programs and stays; `text` has the numbers."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Trustworthy if there are no reasons against it."""

    reasons: tuple[Reason, ...]
    notes: tuple[Reason, ...]

    @property
    def trustworthy(self) -> bool:
        return not self.reasons

    @property
    def line(self) -> str:
        """`verdict: trustworthy`, or all the reasons."""
        if self.trustworthy:
            return "verdict: trustworthy"
        return f"verdict: not trustworthy: {'; '.join(reason.text for reason in self.reasons)}"

    def as_json(self) -> dict[str, Any]:
        told = {
            kind: [{"name": one.name, "text": one.text} for one in ones]
            for kind, ones in (("reasons", self.reasons), ("notes", self.notes))
        }
        return {"trustworthy": self.trustworthy, "line": self.line, **told}


LIMITS = Limits()
Judge = Callable[[Evidence, Limits], Iterator[Reason]]


def verdict(
    evidence: Evidence,
    workers: Sequence[Mapping[str, Any] | None] = (),
    limits: Limits = LIMITS,
    failure: str | None = None,
    faults: Sequence[str] = (),
) -> Verdict:
    """On a job. `workers` are the statistics that they left, None for one that left none; `failure` says why it failed, if it did, and
    `faults` what was set on which links."""
    reasons = [Reason("failed", f"the job failed: {failure}")] if failure else []
    reasons += [reason for judge in JUDGES for reason in judge(evidence, limits)]
    notes = [Reason("faults", f"faults were set on links: {'; '.join(faults)}")] if faults else []
    return Verdict(tuple(reasons), (*notes, *_notes(evidence, workers, limits)))


# -------------------------------------------------------------- reasons


def _sampling(evidence: Evidence, limits: Limits) -> Iterator[Reason]:
    if evidence.failure:
        yield Reason("not_sampled", f"sampling failed ({evidence.failure})")
    share = evidence.unsampled_s / evidence.sampled_s if evidence.sampled_s else 1.0
    if share > limits.unsampled_share:
        text = f"{evidence.unsampled_s:.1f} s of {evidence.sampled_s:.1f} s were not sampled"
        yield Reason("not_sampled", f"{text} (limit {percent(limits.unsampled_share)})")
    late = sum(late_s > limits.late_s for late_s in evidence.late_s)
    if evidence.late_s and late / len(evidence.late_s) > limits.late_share:
        text = f"{percent(late / len(evidence.late_s))} of the samples were more than {limits.late_s * 1e3:g} ms late"
        worst = f"the worst {max(evidence.late_s) * 1e3:.0f} ms"
        yield Reason("clock", f"{text}, {worst} (limit {percent(limits.late_share)})")


def _processors(evidence: Evidence, limits: Limits) -> Iterator[Reason]:
    """A full link sets the pace, and shows that processors kept up with it: only the other seconds can speak against them."""
    open_seconds = [second for second in evidence.seconds if second.link < limits.full_link]
    if len(open_seconds) <= limits.pressed_share * len(evidence.seconds):
        return
    busy = by_core(open_seconds, lambda second: second.busy)
    saturated = {
        core: share
        for core, values in enumerate(busy)
        if (share := sum(one > limits.saturated_busy for one in values) / len(evidence.seconds)) > limits.pressed_share
    }
    if saturated:
        text = f"{_cores(saturated)} {'was' if len(saturated) == 1 else 'were'} saturated and no link full"
        worst = percent(max(saturated.values()))
        yield Reason(
            "core_saturated", f"{text} for {worst} of the time with traffic (limit {percent(limits.pressed_share)})"
        )
    for name, limit, text in (
        ("softirq", limits.softirq, "spent on packets"),
        ("steal", limits.steal, "taken by the hypervisor"),
    ):
        means = {core: statistics.fmean(values) for core, values in enumerate(by_core(open_seconds, attrgetter(name)))}
        above = {core: mean for core, mean in means.items() if mean > limit}
        if above:
            yield Reason(
                name,
                f"{percent(max(above.values()))} of the time of {_cores(above)} was {text} (limit {percent(limit)})",
            )
    waiting = [second.waiting for second in open_seconds if second.waiting is not None]
    if waiting and (mean := statistics.fmean(waiting)) > limits.waiting:
        text = f"some process waited for a core {percent(mean)} of the time"
        yield Reason("waiting", f"{text} (limit {percent(limits.waiting)})")


def _cores(numbers: Collection[int]) -> str:
    return f"core{'s' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"


def _lost(evidence: Evidence, limits: Limits) -> Iterator[Reason]:
    most = limits.lost_share * evidence.frames
    if evidence.softnet_dropped > most:
        text = f"the kernel dropped {counted(evidence.softnet_dropped)} before it looked at them"
        yield Reason("softnet_drops", f"{text} (limit {most:.0f})")
    if sum(evidence.device_drops.values()) > most:
        yield Reason("device_drops", f"{_device_drops(evidence)} (limit {most:.0f})")


def _links(evidence: Evidence, limits: Limits) -> Iterator[Reason]:
    above = [link for link in evidence.links if link.excess > limits.excess]
    if above:
        worst = max(above, key=lambda link: link.excess)
        others = f", and {len(above) - 1} more links were above theirs" if len(above) > 1 else ""
        text = f"link {worst.name} sent {percent(worst.excess)} more than its {worst.rate_mbps:g} Mb/s allow"
        yield Reason("above_rate", f"{text} (limit {percent(limits.excess)}){others}")
    used = [link for link in evidence.links if max(link.utilisation) > 0]
    if used and all(link.rate_mbps is None for link in used):
        busiest = max(used, key=lambda link: link.utilisation[1])
        yield Reason(
            "no_rate", f"links have no rate, so this machine set it: {busiest.name} {busiest.utilisation[0]:.0f} Mb/s"
        )


JUDGES: tuple[Judge, ...] = (_processors, _lost, _links, _sampling)


# -------------------------------------------------------------- notes


def _notes(evidence: Evidence, workers: Sequence[Mapping[str, Any] | None], limits: Limits) -> Iterator[Reason]:
    if not evidence.seconds:
        yield Reason("no_traffic", "no link carried traffic, so processors were not judged")
    if drops := sum(link.queue_drops for link in evidence.links):
        worst: LinkUse = max(evidence.links, key=lambda link: link.queue_drops)
        where = f"{worst.queue_drops} of them on {worst.name}"
        yield Reason("queue_drops", f"links dropped {counted(drops)} at a full queue, as a finite buffer does; {where}")
    if 0 < sum(evidence.device_drops.values()) <= limits.lost_share * evidence.frames:
        yield Reason("device_drops", _device_drops(evidence))
    spent_s = max((number(one, "allreduce", "busy_s") for one in workers), default=0.0)
    sendable = {link.name: (link.rate_mbps or 0.0) * 1.25e5 * spent_s for link in evidence.links}
    shares = {link.name: link.most_bytes / most for link in evidence.links if (most := sendable[link.name]) > 0}
    fullest = max(shares, key=lambda name: shares[name], default="")
    if fullest and shares[fullest] <= 1 + limits.excess:  # more: it carried much else than what was reduced
        text = f"while workers communicated, {fullest}, the fullest link, had {percent(shares[fullest])} of its rate"
        yield Reason("fullest_link", text)
    again, timeouts = (round(sum(number(one, key) for one in workers)) for key in ("retransmits", "timeouts"))
    if again or timeouts:
        yield Reason("retransmits", f"workers sent {again} packets again; {counted(timeouts, 'timeout')}")


def _device_drops(evidence: Evidence) -> str:
    drops = evidence.device_drops
    worst = max(drops, key=lambda name: drops[name])
    count = sum(drops.values())
    return f"{counted(count)} {'was' if count == 1 else 'were'} lost where a device had no room, {drops[worst]} of them at {worst}"


def by_core(seconds: Sequence[Second], column: Callable[[Second], tuple[float, ...]]) -> list[tuple[float, ...]]:
    """For each core its values, a second each."""
    return list(zip(*(column(second) for second in seconds), strict=True))


def number(statistics: Mapping[str, Any] | None, *keys: str) -> float:
    """Of what a worker left, which is its user's business: 0 where there is no sensible number."""
    value: Any = statistics
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0.0


def percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.1 or not share else f"{share * 100:.2g} %"


def counted(count: int, what: str = "frame") -> str:
    return f"{count} {what}{'s' * (count != 1)}"
