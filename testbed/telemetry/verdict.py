"""The verdict: whether the links, rather than the machine that emulates them, determined a result. Pure.

It compares the measured time with what the links allow (testbed/telemetry/bound.py). A reason makes a result
not trustworthy; a note tells a reader something that may be by design, such as drops at a finite queue.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from testbed.messages.statistics import Statistics
from testbed.messages.verdict import JobVerdict, Reason
from testbed.telemetry.bound import Bound
from testbed.telemetry.delays import Delays
from testbed.telemetry.demand import is_of_host
from testbed.telemetry.events import Happened, in_words
from testbed.telemetry.evidence import Evidence, LinkUse, Second
from testbed.telemetry.worker_numbers import number


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The limits within which a result is trusted. docs/verdict.md says how `ratio` was chosen."""

    ratio: float = 1.12  # measured over what the links allow
    least_ratio: float = 0.95  # a result that is faster than its links did not come over them
    unsampled_share: float = 0.05  # of the time
    excess: float = 0.03  # over a link's rate
    lost_share: float = 1e-4  # of the frames, where no queue was full
    traffic_bytes: int = 100_000  # on the job's fullest link: less counts as nothing
    steal_share: float = 0.02  # of the cores' time: more is noted beside a trustworthy result


STEAL, UNUSED = "steal", "unused"  # names of notes whose text is part of the verdict's line
STRAGGLERS = "stragglers"  # another, which is shortened there
ZEROED_SHARE = 0.01  # of a worker's values: real gradients have 0.0005 at most (tests/bench/precision.py)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict; `trustworthy` is None for a job that sent nothing: there is nothing to judge."""

    trustworthy: bool | None
    reasons: tuple[Reason, ...]
    notes: tuple[Reason, ...]
    bound: Bound | None = None
    slept: Delays | None = None

    @property
    def line(self) -> str:
        """`verdict: trustworthy: within ...`, or all the reasons."""
        if self.trustworthy is None:
            return "verdict: none: " + "; ".join(note.text for note in self.notes if note.name != STRAGGLERS)
        if self.trustworthy and self.bound:
            steal = [f"; {note.text}" for note in self.notes if note.name == STEAL]
            unused = [f"; {note.text.partition(':')[0]}" for note in self.notes if note.name == UNUSED]
            slept = [f"; {self.slept.short}"] if self.slept else []
            return f"verdict: trustworthy: {_within(self.bound)}{''.join(slept + steal + unused)}"
        return f"verdict: not trustworthy: {'; '.join(reason.text for reason in self.reasons)}"

    def said(self) -> JobVerdict:
        """Convert the verdict for a job's result."""
        return JobVerdict(self.trustworthy, self.line, tuple(self.reasons), tuple(self.notes))


TOLERANCES = Tolerances()
NOTHING = Happened()
DROPS_SHARE = 1e-3  # of the frames: TCP that loses a part waits for it
COMPANY_CORES = 0.1  # used by programs outside the testbed: from here on they are named as a cause


def verdict(
    evidence: Evidence,
    bound: Bound | None,
    workers: Sequence[Statistics | None] = (),
    tolerances: Tolerances = TOLERANCES,
    failure: str | None = None,
    happened: Happened = NOTHING,
    hosts: Sequence[str] = (),
    unused: str | None = None,
    slept: Delays | None = None,
    missing: str | None = None,
) -> Verdict:
    """Judge a job on these `hosts`. `workers`: their statistics, None for a worker without any. `failure`:
    why the job failed, if it did. `happened`: events on its links and on the machine. `unused`: that it
    summed nothing although it should have. `slept`: the delays injected into its workers. `missing`: which
    statistics are missing, and why; without them nothing is trusted.
    """
    evidence = _of_used_links(evidence, happened)
    first = [Reason(UNUSED, unused)] if unused else []
    first += [Reason(STRAGGLERS, slept.line)] if slept else []
    own = [link for link in evidence.links if link.name in hosts]
    sent = max((happened.own_bytes(link) for link in own), default=0)
    if sent < tolerances.traffic_bytes and failure is None and evidence.failure is None:
        return Verdict(None, (), (Reason("no_traffic", _no_traffic(sent, tolerances)), *first))
    reasons = [Reason("failed", f"the job failed: {failure}")] if failure else []
    if missing:
        reasons.append(Reason("no_statistics", missing))
    else:
        reasons += _set_by_links(evidence, bound, own, tolerances, workers, happened)
    reasons += [
        *_above_rate(evidence, tolerances),
        *_sampling(evidence, tolerances),
    ]
    notes = [Reason(name, text) for name, text in happened.notes()]
    notes += _notes(evidence, bound, workers, tolerances, not reasons, happened)
    return Verdict(not reasons, tuple(reasons), (*first, *notes), bound, slept)


def _no_traffic(sent: int, tolerances: Tolerances) -> str:
    if not sent:
        return "this job sent nothing over links, so there is nothing to judge"
    return (
        f"this job sent {sent / 1e3:.3g} kB over its fullest link, which is too little to judge "
        f"(limit {tolerances.traffic_bytes / 1e3:g} kB)"
    )


# -------------------------------------------------------------- reasons


def _set_by_links(
    evidence: Evidence,
    bound: Bound | None,
    own: Sequence[LinkUse],
    tolerances: Tolerances,
    workers: Sequence[Statistics | None],
    happened: Happened,
) -> Iterator[Reason]:
    if bound is None:
        if any(link.rate_mbps is not None for link in own):
            text = "no sums of this job were seen often enough to compare them with what the links allow"
            yield Reason("no_bound", text)
            return
        busiest = max(own or evidence.links, key=lambda link: link.utilisation[1], default=None)
        speed = f": {busiest.name} {busiest.utilisation[0]:.0f} Mb/s" if busiest else ""
        yield Reason("no_rate", f"no rates: the machine is what is measured{speed}")
    elif bound.ratio > tolerances.ratio:
        if causes := happened.causes(evidence, workers):
            words = " and ".join(text for _, text in causes)
            also = f"; besides, {happened.company.words}" if _has_company(happened) else ""
            yield Reason(causes[0][0], f"{_times(bound)}: {words}; other rates do not mend that{also}")
        else:
            yield Reason("machine_bound", f"machine-bound: {_times(bound)}; {_remedy(evidence, happened)}")
    elif bound.ratio < tolerances.least_ratio and not _sums_lack_workers(workers):
        yield Reason(
            "beyond_links", f"faster than links can be: {_times(bound)}; they let pass more than their rates"
        )
    else:
        yield from _counts_others(evidence, bound, happened)


def _counts_others(evidence: Evidence, bound: Bound, happened: Happened) -> Iterator[Reason]:
    """Yield a reason if the bound is made from links' counters that include other traffic, or may."""
    if not (bound.coarse or bound.shared):
        return
    crowding = [each for each in happened.crowding(evidence) if bound.coarse or not is_of_host(each.link)]
    counters = "in the counters that this is made of"
    if crowding:
        text = f"{_within(bound)}, but other traffic is {counters} ({in_words(crowding)})"
        yield Reason("other_traffic", text)
    elif happened.uncounted:
        text = f"{_within(bound)}, but whether other traffic is {counters} is not known: {happened.uncounted}"
        yield Reason("traffic_unknown", text)


def _sums_lack_workers(workers: Sequence[Statistics | None]) -> bool:
    """Return whether some sum did not wait for all workers, as the bound does."""
    return any(number(left, "degraded_sums") for left in workers)


def _within(bound: Bound) -> str:
    if bound.ratio < TOLERANCES.least_ratio:
        return f"{bound.ratio:.2f} times what links allow if all are waited for ({_numbers(bound)})"
    return f"within {max(0.0, bound.ratio - 1) * 100:.0f} % of what the links allow ({_numbers(bound)})"


def _times(bound: Bound) -> str:
    return f"{bound.ratio:.2f} times what the links allow ({_numbers(bound)})"


def _numbers(bound: Bound) -> str:
    if bound.coarse:
        full = f"{bound.bound_ms / 10:.0f} % of the time with traffic"
        return f"coarse: a link was full {full}, and no sum was seen"
    return f"{bound.measured_ms:.4g} ms a round, {bound.bound_ms:.4g} allowed"


def _remedy(evidence: Evidence, happened: Happened) -> str:
    """Say what would make the machine's part small relative to the links'. It gives no factor: no tried
    number was reliable (docs/verdict.md).
    """
    lower = "lower the rates (a larger scale), or use fewer workers"
    drops = sum(link.queue_drops for link in evidence.links)
    if drops >= DROPS_SHARE * max(1, evidence.frames):
        lower = f"{counted(drops)} dropped at a full queue may be why (see buffer_packets); else {lower}"
    if _has_company(happened):
        return f"{happened.company.words}: run it without them, or {lower}"
    return lower


def _has_company(happened: Happened) -> bool:
    return bool(happened.company.testbeds) or happened.company.cores >= COMPANY_CORES


def _of_used_links(evidence: Evidence, happened: Happened) -> Evidence:
    """Restrict the evidence to the links that the job used, and to their devices."""
    return replace(
        evidence,
        links=tuple(link for link in evidence.links if happened.concerns(link.name)),
        device_drops={
            name: count for name, count in evidence.device_drops.items() if happened.concerns(name)
        },
    )


def _above_rate(evidence: Evidence, tolerances: Tolerances) -> Iterator[Reason]:
    above = [link for link in evidence.links if link.excess > tolerances.excess]
    if above:
        worst = max(above, key=lambda link: link.excess)
        others = f", and {len(above) - 1} more links were above theirs" if len(above) > 1 else ""
        text = f"link {worst.name} sent {percent(worst.excess)} more than its {worst.rate_mbps:g} Mb/s allow"
        yield Reason("above_rate", f"{text} (limit {percent(tolerances.excess)}){others}")


def _sampling(evidence: Evidence, tolerances: Tolerances) -> Iterator[Reason]:
    if evidence.failure:
        yield Reason("not_sampled", f"sampling failed ({evidence.failure})")
    share = evidence.unsampled_s / evidence.sampled_s if evidence.sampled_s else 1.0
    if share > tolerances.unsampled_share:
        text = f"{evidence.unsampled_s:.1f} s of {evidence.sampled_s:.1f} s were not sampled"
        yield Reason("not_sampled", f"{text} (limit {percent(tolerances.unsampled_share)})")


# -------------------------------------------------------------- notes


def _notes(
    evidence: Evidence,
    bound: Bound | None,
    workers: Sequence[Statistics | None],
    tolerances: Tolerances,
    trusted: bool,
    happened: Happened,
) -> Iterator[Reason]:
    if bound and bound.shared:
        text = (
            "other jobs crossed its optical links: of these it is allowed what they left, and at least its "
            "fair share"
        )
        yield Reason("shared", text)
    if bound and not trusted and evidence.seconds:
        yield Reason("processors", _processors(evidence, bound))
    if trusted and (steal := _mean(evidence.seconds, "steal")) >= tolerances.steal_share:
        text = f"the hypervisor took {percent(steal)} of the cores, some of which may count as computing"
        yield Reason(STEAL, text)
    if drops := sum(link.queue_drops for link in evidence.links):
        worst: LinkUse = max(evidence.links, key=lambda link: link.queue_drops)
        where = f"{worst.queue_drops} of them on {worst.name}"
        yield Reason(
            "queue_drops", f"links dropped {counted(drops)} at a full queue, as a finite buffer does; {where}"
        )
    if evidence.softnet_dropped > tolerances.lost_share * evidence.frames:
        text = f"the kernel dropped {counted(evidence.softnet_dropped)} before it looked at them"
        yield Reason("softnet_drops", text)
    if sum(evidence.device_drops.values()):
        yield Reason("device_drops", _device_drops(evidence, happened))
    again, timeouts = (
        round(sum(number(each, key) for each in workers)) for key in ("retransmits", "timeouts")
    )
    if again or timeouts:
        text = f"workers sent {again} packets again, which the bound does not count; "
        text += counted(timeouts, "timeout")
        yield Reason("retransmits", text)
    yield from _degraded(workers)


def _degraded(workers: Sequence[Statistics | None]) -> Iterator[Reason]:
    """Yield notes on sums that lack workers. All workers receive these sums, so the largest count is
    reported.
    """
    sums = max((number(left, "degraded_sums") for left in workers), default=0)
    if sums:
        fewest = min(number(left, "fewest_contributors") for left in workers if number(left, "degraded_sums"))
        text = (
            f"{counted(round(sums), 'sum')} lacked workers, {fewest:g} of {len(workers)} contributed at least"
        )
        nobodys = "" if fewest else ", and zeros where nobody did"
        yield Reason("degraded", f"{text}: means are over those who did{nobodys}")
    yield from _unscaled(workers)


def _unscaled(workers: Sequence[Statistics | None]) -> Iterator[Reason]:
    """Yield notes on values that did not fit the scale of their fragment."""
    left_out = round(sum(number(left, "left_out") for left in workers))
    if left_out:
        text = f"{counted(left_out, 'value')} of workers whose votes came late were left out of their sums"
        yield Reason("left_out", f"{text}: the scale that the others agreed on has no room for them")
    zeroed = [number(left, "zeroed") / max(1.0, number(left, "scaled")) for left in workers]
    worst = max(range(len(zeroed)), key=zeroed.__getitem__, default=0)
    if zeroed and zeroed[worst] >= ZEROED_SHARE:
        text = (
            f"{percent(zeroed[worst])} of worker {worst}'s values were too small beside the largest of their"
        )
        yield Reason("zeroed", f"{text} fragment, and counted as 0")


def _processors(evidence: Evidence, bound: Bound) -> str:
    """Describe the machine's load in the time with traffic."""
    seconds = evidence.seconds
    busy, softirq, steal = (_mean(seconds, column) for column in ("busy", "softirq", "steal"))
    parts = [f"cores were busy {percent(busy)} of the time with traffic", f"{percent(softirq)} on packets"]
    if steal >= 0.01:
        parts.append(f"{percent(steal)} taken by the hypervisor")
    waiting = [second.waiting for second in seconds if second.waiting is not None]
    if waiting:
        parts.append(f"some process waited for a core {percent(statistics.fmean(waiting))} of it")
    if not bound.coarse:
        parts.append(f"a worker's script {bound.starved_ms:.1f} ms of a round")
    return ", ".join(parts)


def _mean(seconds: Sequence[Second], column: str) -> float:
    """Return the mean over all cores in all of these seconds; 0 without seconds."""
    shares = [share for second in seconds for share in getattr(second, column)]
    return statistics.fmean(shares) if shares else 0.0


def _device_drops(evidence: Evidence, happened: Happened) -> str:
    drops = evidence.device_drops
    worst = max(drops, key=lambda name: drops[name])
    count = sum(drops.values())
    lost = f"{counted(count)} {'was' if count == 1 else 'were'} lost"
    is_down = any(change.startswith(f"{worst} ") for change in happened.downs)
    where = "a device was down, or had no room" if is_down else "a device had no room"
    return f"{lost} where {where}, {drops[worst]} of them at {worst}"


def by_core(
    seconds: Sequence[Second], column: Callable[[Second], tuple[float, ...]]
) -> list[tuple[float, ...]]:
    """Return each core's values, one per second."""
    return list(zip(*(column(second) for second in seconds), strict=True))


def percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.1 or not share else f"{share * 100:.2g} %"


def counted(count: int, what: str = "frame") -> str:
    return f"{count} {what}{'s' * (count != 1)}"
