"""The observation of a job: counters read while it runs, and the parts of its result on links, telemetry and
verdict.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from testbed.aggregation.system import Layout
from testbed.errors import ChangedError
from testbed.jobs.environment import OWN_SIGNS
from testbed.jobs.result import link_deltas, unused
from testbed.jobs.surroundings import Surrounding, Surroundings, recent_scenes
from testbed.machine.interface import Hosts, Links
from testbed.machine.links import LinkDisturbance, burst_bytes
from testbed.messages.links import LinkDelta
from testbed.messages.result import BoundResult, JobDelays, JobTelemetry, OpticalLosses, OthersTraffic
from testbed.messages.statistics import Statistics
from testbed.messages.verdict import JobVerdict
from testbed.telemetry.bound import bound, coarse
from testbed.telemetry.changes import changed, with_down
from testbed.telemetry.delays import delays
from testbed.telemetry.demand import Traffic
from testbed.telemetry.events import Happened
from testbed.telemetry.evidence import evidence
from testbed.telemetry.network import LitNetwork
from testbed.telemetry.sampler import Sampler
from testbed.telemetry.samples import Recording
from testbed.telemetry.summary import series, summary
from testbed.telemetry.timelines import read, rounds
from testbed.telemetry.verdict import verdict
from testbed.telemetry.worker_numbers import sent_beside


def bursts_of(rates_mbps: Iterable[tuple[str, float | None]], mtu: int) -> dict[str, int]:
    """Compute the bytes that the shaper of each link with a rate may send at once."""
    return {link: burst_bytes(rate_mbps, mtu) for link, rate_mbps in rates_mbps if rate_mbps}


def require_links(links: Links, names: Sequence[str]) -> None:
    """Raise ChangedError if a device of these hosts' links was deleted."""
    links.statistics(queues_only=True)
    for link, device in links.gone_links().items():
        if link in names:
            raise ChangedError(
                f"link {link}: its device {device} was deleted: end the testbed, and bring it up again"
            )


@dataclass(frozen=True, slots=True)
class Observed:
    """The parts of a job's result (testbed/messages/result.py, RunResult) on its links, samples and machine.
    `series` is an .npz file in base64; None if it was not requested.
    """

    links: tuple[LinkDelta, ...]
    telemetry: JobTelemetry
    stragglers: JobDelays | None
    optical_losses: dict[str, OpticalLosses]
    other_traffic: tuple[OthersTraffic, ...]
    bound: BoundResult | None
    verdict: JobVerdict
    series: str | None


class Observation:
    """A context manager around a job's life, from before its first process to after its last; then `report`
    returns the observations.

    `job_hosts` are the hosts that send: losses at their own interfaces are read only before and after, host
    by host.
    """

    def __init__(
        self,
        sampler: Sampler,
        links: Links,
        hosts: Hosts,
        job_hosts: Sequence[str],
        mtu: int,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._sampler, self._links, self._hosts = sampler, links, hosts
        self._job_hosts, self._mtu = tuple(job_hosts), mtu
        self._surroundings = surroundings
        self._scenes: list[Surrounding] = []
        self._stack = ExitStack()
        self._recording: Recording | None = None

    def __enter__(self) -> Self:
        self._before, self._unsent_before = self._links.statistics(), self._hosts.unsent(self._job_hosts)
        self._look_around()
        self._ports = self._hosts.watch_ports(self._job_hosts, OWN_SIGNS)
        with ExitStack() as stack:
            stack.enter_context(self._ports)
            self._recording = stack.enter_context(self._sampler.recording())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if error is None:
            self._after, self._unsent_after = self._links.statistics(), self._hosts.unsent(self._job_hosts)
            self._look_around()

    def _look_around(self) -> None:
        if self._surroundings is not None:
            since_s = self._scenes[0].spent.at_s if self._scenes else None
            self._scenes.append(self._surroundings.look(self._faults(since_s)))

    def _faults(self, since_s: float | None) -> list[tuple[str, str]]:
        """Return the faults that are set on links, and those that ended since then."""
        ended = [] if since_s is None else self._links.ended_faults(since_s)
        return faults_in_words([*ended, *self._links.fault_states()])

    def outlook(self, layout: Layout, job: int) -> JobVerdict | None:
        """Return the verdict on the last seconds of a running job, by a coarse bound, because its workers
        report their measurements only at its end. None if it is too early, or without surroundings.
        """
        if self._surroundings is None:
            return None
        began, lately = self._scenes[0], self._surroundings.lately(self._faults)
        scenes = recent_scenes([began, *(each for each in lately if each.spent.at_s > began.spent.at_s)])
        recent = self._sampler.recent(time.monotonic() - scenes[0].spent.at_s)
        if recent is None or len(scenes) < 2:
            return None
        bursts = bursts_of(zip(recent.names, recent.rates_mbps, strict=True), self._mtu)
        _, happened = self._happened(scenes, layout, job, recent)
        seen = evidence(recent, bursts, {}, self._job_hosts)
        return verdict(seen, coarse(seen), hosts=self._job_hosts, happened=happened).said()

    def report(
        self,
        workers: Sequence[Statistics | None],
        traffic: Traffic,
        failure: str | None,
        with_series: bool,
        starts: int = 1,
        stragglers: str | None = None,
        missing: str | None = None,
        layout: Layout | None = None,
        job: int = 0,
    ) -> Observed:
        """Return the observations, with all samples if requested.

        `workers`: their statistics by rank, from the last of its `starts`; `stragglers`: the pattern of
        injected delays; `missing`: which statistics are missing, and why; `layout`: the layout of the job
        number `job` in its last start.
        """
        assert self._recording is not None
        links = link_deltas(self._before, self._after)
        lost = {link.name: link.device_drops for link in links}
        for host, count in self._unsent_after.items():
            lost[host] = lost.get(host, 0) + count - self._unsent_before[host]
        bursts = bursts_of(((link.name, link.rate_mbps) for link in links), self._mtu)
        seen = evidence(self._recording, bursts, lost, self._job_hosts)
        depths_s = {link.name: bursts[link.name] * 8e-6 / link.rate_mbps for link in links if link.rate_mbps}
        network, happened = self._happened(self._scenes, layout, job, self._recording)
        others_sent = happened.uncounted is not None or bool(happened.crowding(seen))
        allowed = bound(self._recording, workers, traffic, depths_s, network, others_sent)
        if allowed is None and not any(read(left) for left in workers):
            allowed = coarse(seen)
        sent_bytes = sum(link.bytes_up for link in links if link.name in traffic.hosts)
        sent_bytes -= sent_beside(workers) * self._mtu
        sent_bytes -= happened.sent_from(traffic.hosts)
        not_used = None if failure or missing else unused(traffic.transport, workers, sent_bytes, starts)
        slept = delays(workers, stragglers)
        judged = verdict(
            seen,
            allowed,
            workers,
            failure=failure,
            happened=happened,
            hosts=traffic.hosts,
            unused=not_used,
            missing=missing,
            slept=slept,
        )
        return Observed(
            links=tuple(links),
            telemetry=summary(self._recording, seen),
            stragglers=slept.said() if slept else None,
            optical_losses={name: OpticalLosses(*lost) for name, lost in sorted(happened.lost.items())},
            other_traffic=tuple(happened.traffic),
            bound=allowed.said() if allowed else None,
            verdict=judged.said(),
            series=self._series(workers, len(traffic.hosts)) if with_series else None,
        )

    def _series(self, workers: Sequence[Statistics | None], senders: int) -> str:
        """Return all samples, and the rounds if all of the job's senders left a timeline."""
        assert self._recording is not None
        timelines = [timeline for timeline in map(read, workers) if timeline is not None]
        seen_rounds = rounds(timelines) if len(timelines) == senders else []
        return base64.b64encode(series(self._recording, seen_rounds)).decode()

    def _happened(
        self, scenes: Sequence[Surrounding], layout: Layout | None, job: int, recording: Recording
    ) -> tuple[LitNetwork | None, Happened]:
        """Return the network between the first and the last of several scenes, and the events on the job's
        links and the machine.
        """
        changes = self._links.ever_by_hand()
        if self._surroundings is None or layout is None or len(scenes) < 2:
            return None, Happened(changes=changed(recording, changes), uncounted="nothing counted it")
        began, ended = scenes[0], scenes[-1]
        over_time = self._surroundings.network(began, ended)
        links = over_time.links(layout)
        lasted_s = over_time.down_s(ended.spent.at_s)
        down_s = {link: lasted_s[link] for link in sorted(links.intersection(lasted_s))}
        faults = dict.fromkeys(fault for scene in scenes for fault in scene.faults)
        return over_time, Happened(
            links=links,
            faults=[text for link, text in faults if link in links],
            changes=with_down(changed(recording, links.intersection(changes)), down_s),
            lost=over_time.losses(layout),
            apart_s=over_time.apart_s(layout.demands, ended.spent.at_s),
            timetables=over_time.timetables if layout.demands else (),
            traffic=self._surroundings.traffic(
                began, ended, layout, job, _held_by_others(recording, job), over_time, self._ports.ports
            ),
            company=self._surroundings.company(began, ended),
            unknown=over_time.unknown if layout.demands else None,
            uncounted=self._surroundings.uncounted(began, ended),
        )


def _held_by_others(recording: Recording, job: int) -> set[str]:
    """Return the hosts that other jobs held at any time."""
    return {host for sample in recording.samples for host, holder in sample.holders.items() if holder != job}


def faults_in_words(faults: Sequence[LinkDisturbance]) -> list[tuple[str, str]]:
    """Return each fault's link and description, without repeats."""
    return list(dict.fromkeys((fault.link, str(fault)) for fault in faults))
