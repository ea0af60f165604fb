"""Events on a job's links and on its machine while it ran: the explanations of a verdict. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.messages.result import OthersTraffic
from testbed.messages.statistics import Statistics
from testbed.ocs.timetable import Timetable
from testbed.telemetry.changes import WAS_DOWN
from testbed.telemetry.evidence import Evidence, LinkUse
from testbed.telemetry.other_programs import Company
from testbed.telemetry.worker_numbers import number

MATTERS = 0.02  # share of a link's bytes, of its frames, or of all cores: less explains no delay


ALONE = Company()


@dataclass(frozen=True, slots=True)
class Happened:
    """The events during a job. `links`: those that its traffic used, None: any. `lost`: by optical port or
    unit, the frames lost in the dark and without a circuit. `apart_s`: by pair of units, the time without any
    path over circuits. `traffic`: others' traffic on the job's links. `unknown`: why circuits are not known;
    `uncounted`: why not all other traffic is known.
    """

    links: frozenset[str] | None = None
    faults: Sequence[str] = ()
    changes: Sequence[str] = ()
    lost: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    apart_s: Mapping[str, float] = field(default_factory=dict)
    timetables: Sequence[Timetable] = ()
    traffic: Sequence[OthersTraffic] = ()
    company: Company = ALONE
    unknown: str | None = None
    uncounted: str | None = None

    def concerns(self, link: str) -> bool:
        """Return whether the job used this link, or the link of this device."""
        return self.links is None or link in self.links

    def sent_from(self, hosts: Collection[str]) -> int:
        """Count the bytes of other traffic that these hosts sent."""
        return sum(each.bytes_up for each in self.traffic if each.link in hosts)

    def own_bytes(self, link: LinkUse) -> int:
        """Return the bytes of a link in its busier direction, without other traffic."""
        others = [each for each in self.traffic if each.link == link.name]
        if not others:
            return link.most_bytes
        up, total = sum(each.bytes_up for each in others), sum(each.bytes for each in others)
        return max(link.bytes_up - up, link.bytes - link.bytes_up - (total - up), 0)

    def crowding(self, evidence: Evidence) -> list[OthersTraffic]:
        """Return the other traffic on links where it makes up a relevant share of the bytes."""
        on_links = {link.name: link.most_bytes for link in evidence.links}
        others: dict[str, int] = {}
        for each in self.traffic:
            others[each.link] = others.get(each.link, 0) + each.bytes
        return [
            each for each in self.traffic if others[each.link] >= MATTERS * max(1, on_links.get(each.link, 0))
        ]

    @property
    def dark(self) -> int:
        return sum(dark for dark, _ in self.lost.values())

    @property
    def unlit(self) -> int:
        return sum(unlit for _, unlit in self.lost.values())

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield the notes for a reader: name and text."""
        if self.faults:
            text = f"faults were set on links: {'; '.join(self.faults)}; the bound is without them"
            yield "faults", text
        if self.changes:
            heeds = {
                (False, True): "which the bound heeds",
                (True, False): "which the bound does not count",
                (True, True): "of which the bound heeds the rates, and does not count the time down",
            }[bool(self.downs), len(self.downs) < len(self.changes)]
            yield "links_changed", f"links were changed by hand, {heeds}: {'; '.join(self.changes)}"
        if self.apart_s and not self.timetables:
            pairs = "; ".join(f"{pair} for {_lasted(lasted_s)}" for pair, lasted_s in self.apart_s.items())
            yield "apart", f"no light joined units of the job, which the bound heeds: {pairs}"
        for table in self.timetables:
            text = (
                f"circuits went by a timetable of {len(table.matchings)} matchings in "
                f"{table.period_ns / 1e6:g} ms, dark for the first {table.guard_ns / 1e6:g} ms of each, "
                "which the bound heeds"
            )
            yield "timetable", text
        if self.lost:
            yield "lost_light", f"{self.lost_words()}: {_by_port(self.lost)}"
        if self.traffic:
            yield "other_traffic", f"other traffic on the job's links: {self.traffic_words()}"
        if self.uncounted:
            yield "traffic_unknown", f"what other traffic was on its links is not known: {self.uncounted}"
        if self.company.testbeds or self.company.cores >= 0.05:
            yield "company", self.company.words
        if self.unknown:
            yield "light_unknown", f"which circuits were lit, and what was lost, is not known: {self.unknown}"

    def causes(self, evidence: Evidence, workers: Sequence[Statistics | None]) -> list[tuple[str, str]]:
        """Return the causes of time that the bound does not allow and that slower links would not mend: a
        name for programs, and the words.
        """
        again = sum(number(left, key) for left in workers for key in ("retransmits", "timeouts"))
        causes = []
        if self.dark + self.unlit > MATTERS**2 * evidence.frames:
            causes.append(("lost_light", self.lost_words()))
        if lossy := [fault for fault in self.faults if "delay" not in fault or again]:
            causes.append(("faults", f"faults were set on links ({'; '.join(lossy)})"))
        if self.downs:
            causes.append(("links_changed", "; ".join(self.downs)))
        if crowding := self.crowding(evidence):
            causes.append(("other_traffic", f"other traffic was on its links ({in_words(crowding)})"))
        return causes

    @property
    def downs(self) -> list[str]:
        """The changes that say how long a link was down."""
        return [change for change in self.changes if WAS_DOWN in change]

    def lost_words(self) -> str:
        """Describe how many frames the optical switch lost."""
        parts = [
            f"{count} {'frame' if count == 1 else 'frames'} {where}"
            for count, where in ((self.dark, "in the dark"), (self.unlit, "without a circuit"))
            if count
        ]
        return f"the optical switch lost {' and '.join(parts)}"

    def traffic_words(self) -> str:
        return in_words(self.traffic)


def in_words(traffic: Sequence[OthersTraffic]) -> str:
    most = sorted(traffic, key=lambda each: -each.bytes)
    more = f"; {len(most) - 3} more" if len(most) > 3 else ""
    return "; ".join(str(each) for each in most[:3]) + more


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _by_port(lost: Mapping[str, tuple[int, int]]) -> str:
    worst = sorted(lost, key=lambda port: -sum(lost[port]))
    more = f", and {len(worst) - 4} more" if len(worst) > 4 else ""
    return ", ".join(f"{sum(lost[port])} at {port}" for port in worst[:4]) + more
