"""Figures 9 to 11: models' gradients summed by each way in section 6.3's network, in buckets as DDP makes
them; meanwhile the rates on hosts' links and the CPU time of hosts are measured. Owns the runs.

Communication time is the time of an iteration that computes nothing, as in the paper's numbers. With declared
computing times, backward hides part of the same sums: the `computing` runs show that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.aleph.live.cores import HostCores, TakenCores
from reproductions.aleph.live.setting import (
    ALEPH,
    PRINTED,
    PS,
    RING,
    WAYS,
    Sync,
    bound_of,
    run,
    section_6_3,
)
from reproductions.claims import Finding, timed
from reproductions.example_jobs import LayersResult
from reproductions.reports import ByVerdict, FigureReport, NumberedRow, Trust
from reproductions.verdicts import FLAT, of_gain
from testbed.errors import TestbedError
from testbed.figures import finished_runs
from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.messages.result import RunResult
from testbed.messages.verdict import JobVerdict

MODELS = ("resnet50", "vgg19", "bert")
BATCHES = {"resnet50": 64, "vgg19": 64, "bert": 16}
"""Images or sequences per worker (section 6.1)."""
PAPER_S = {
    "resnet50": {PS.sync: 0.17, RING.sync: 0.15, ALEPH.sync: 0.12},
    "vgg19": {PS.sync: 0.84, RING.sync: 0.78, ALEPH.sync: 0.58},
    "bert": {PS.sync: 0.73, RING.sync: 0.65, ALEPH.sync: 0.51},
}
"""Figure 11's times, as stated in the text."""
PAPER_CUTS = {
    "resnet50": {PS.sync: 0.29, RING.sync: 0.20},
    "vgg19": {PS.sync: 0.31, RING.sync: 0.26},
    "bert": {PS.sync: 0.30, RING.sync: 0.22},
}
PAPER_USE = {
    "resnet50": {PS.sync: 1.36, RING.sync: 0.36},
    "vgg19": {PS.sync: 1.63, RING.sync: 0.36},
    "bert": {PS.sync: 1.41, RING.sync: 0.19},
}
"""By what share ALEPH's workers use their links more than those of the other systems (figure 9)."""
PAPER_CORES = {
    "resnet50": {PS.sync: 3.9, ALEPH.sync: 6.8},
    "vgg19": {PS.sync: 4.1, ALEPH.sync: 8.5},
    "bert": {PS.sync: 4.5, ALEPH.sync: 7.8},
}
PAPER_CORES_OF = "Agg2"
"""The role of the hosts in `PAPER_CORES`, which are figure 10's numbers as stated in the text."""
PAPER_LESS_CPU = {PS.sync: 0.06, RING.sync: 0.11}
"""By what share ALEPH's other workers use less CPU time than those of the other systems (figure 10)."""
ROLES = {30_000.0: "Agg2", 20_000.0: "Agg1", 10_000.0: "worker", 40_000.0: "PS"}
"""Section 6.3's role names by declared link rate in Mb/s; the heads of its clusters have these rates."""
NOISE = FLAT / 2


@dataclass(frozen=True, slots=True)
class RoleMeans:
    """A role's means over its hosts: Gb/s in the link's busier direction while there was traffic, converted
    to declared rates; the share of the link's rate; and the cores used by its processes and by the kernel for
    it (UNSET where not known).
    """

    gbps: float
    share: float
    process_cores: float | UnsetType = UNSET
    kernel_cores: float | UnsetType = UNSET
    hosts: int = 0

    @property
    def cores(self) -> TakenCores | None:
        if isinstance(self.process_cores, UnsetType) or isinstance(self.kernel_cores, UnsetType):
            return None
        return TakenCores(self.process_cores, self.kernel_cores)


@dataclass(frozen=True, slots=True)
class TrainingRow(ByVerdict, NumberedRow):
    """A run of a model by a way, with the computing times of a profile ("none": it computes nothing).
    `cores_unknown` is the reason why roles have no cores; `cores_busy` counts busy cores of the machine.
    """

    model: str
    way: str
    profile: str
    iteration_ms: Number
    compute_ms: Number
    error_over_bound: Number
    roles: Mapping[str, RoleMeans]
    cores_unknown: str | None
    cores_busy: float
    bound_ms: Number
    measured_ms: Number
    ratio: Number
    verdict: JobVerdict


Rows = Sequence[TrainingRow]


@dataclass(frozen=True, slots=True)
class TrainingReport(FigureReport):
    """The report of figures 9 to 11."""

    version: int
    rows: Rows
    trust: Trust
    scale: int
    iterations: int


def measure(
    models: Sequence[str],
    iterations: int,
    scale: int,
    computing: bool,
    folder: Path,
    on_done: Callable[[str], None],
) -> list[TrainingRow]:
    """Run each model by each way on one testbed, without computing and, with `computing`, also with it.
    Return a row for each run.
    """
    rows: list[TrainingRow] = []
    with (
        live.testbed("aleph-6-3", section_6_3(scale), folder) as testbed,
        HostCores(testbed) as hosts,
    ):
        for model in models:
            for way in WAYS:
                for profile in ("none", "gtx1080ti")[: 2 if computing else 1]:
                    measure_one = partial(_row, testbed, hosts, model, way, iterations, profile, folder)
                    rows.append(
                        finished_runs.row(folder, f"{model}.{way.sync}.{profile}", TrainingRow, measure_one)
                    )
                    on_done(f"{model}, {way.title}{', computing' if profile != 'none' else ''}")
    return rows


def count(models: Sequence[str], computing: bool) -> int:
    """Count the runs that `measure` makes."""
    return len(models) * len(WAYS) * (2 if computing else 1)


def _row(
    testbed: live.TestbedOfFigures,
    hosts: HostCores,
    model: str,
    way: Sync,
    iterations: int,
    profile: str,
    folder: Path,
) -> TrainingRow:
    words = ["--model", model, "--iterations", str(iterations), "--profile", profile]
    words += ["--batch", str(BATCHES[model]), "--scale", str(testbed.topology.scale)]
    with hosts.sampled() as samples:
        stem = f"{model}.{way.sync}.{profile}"
        result, script = run(testbed, way, stem, folder, LayersResult, "layers.py", *words)
    cores = samples.between(script.ready_s, script.done_s)
    return TrainingRow(
        model,
        way.sync,
        profile,
        script.iteration_ms,
        script.compute_ms,
        script.error_over_bound,
        roles(result, testbed, {} if isinstance(cores, str) else cores),
        cores if isinstance(cores, str) else None,
        math.fsum(_sampled(core.busy.median) for core in result.telemetry.cores),
        *bound_of(result),
    )


def _sampled(median: float | None) -> float:
    """Return a median. TestbedError where nothing was sampled."""
    if median is None:
        raise TestbedError("the run was over before its cores were sampled")
    return median


def roles(
    result: RunResult, testbed: live.TestbedOfFigures, cores: Mapping[str, TakenCores]
) -> dict[str, RoleMeans]:
    """Compute means over hosts by role; `cores` are the cores by host, empty if not known."""
    scale, traffic_s = testbed.topology.scale, result.telemetry.traffic_s
    by: dict[str, list[tuple[float, float, TakenCores | None]]] = {}
    for link in result.links:
        rate_mbps = (link.rate_mbps or 0.0) * scale
        role = ROLES.get(round(rate_mbps, 3))
        if role is None or "h" not in link.name:
            continue
        most_bytes = max(link.bytes_up, link.bytes_down)
        gbps = most_bytes * 8 / traffic_s * scale / 1e9
        taken = cores[link.name] if cores else None
        by.setdefault(role, []).append((gbps, gbps / (rate_mbps / 1e3), taken))
    return {role: _means(hosts) for role, hosts in by.items()}


def _means(hosts: Sequence[tuple[float, float, TakenCores | None]]) -> RoleMeans:
    """Average a role's hosts; each host has Gb/s, share of its link, and its cores if known."""
    taken = [cores for _, _, cores in hosts if cores is not None]
    return RoleMeans(
        gbps=math.fsum(gbps for gbps, _, _ in hosts) / len(hosts),
        share=math.fsum(share for _, share, _ in hosts) / len(hosts),
        process_cores=math.fsum(cores.process for cores in taken) / len(hosts) if taken else UNSET,
        kernel_cores=math.fsum(cores.kernel for cores in taken) / len(hosts) if taken else UNSET,
        hosts=len(hosts),
    )


def cores_of(row: TrainingRow, role: str) -> float | None:
    """Return the mean number of cores, processes and kernel, that a host of this role used; None where
    not known.
    """
    cores = row.roles[role].cores
    return None if cores is None else cores.process + cores.kernel


def workers_gbps(row: TrainingRow) -> float:
    """Sum the rates of all workers' links. This is the paper's measure: its numbers for ResNet50, 79.3
    against 33.6 Gb/s, give the 136 % that it states.
    """
    return math.fsum(means.gbps * means.hosts for role, means in row.roles.items() if role != ROLES[40_000.0])


def picked(rows: Rows, model: str, way: str, profile: str = "none") -> TrainingRow:
    """Return the row of a model, way and profile."""
    return next(row for row in rows if (row.model, row.way, row.profile) == (model, way, profile))


def claims(rows: Rows) -> list[Finding]:
    """Compare the paper's cuts in communication time with ours and with the cut that links alone allow;
    likewise how much more all workers' links carry, and CPU time.
    """
    findings: list[Finding] = []
    for model in dict.fromkeys(row.model for row in rows):
        for of, paper in PAPER_CUTS[model].items():
            for way in (ALEPH, PRINTED):
                pair = [picked(rows, model, each) for each in (way.sync, of)]
                ours = 1 - pair[0].iteration_ms / pair[1].iteration_ms
                allowed = 1 - pair[0].bound_ms / pair[1].bound_ms
                name = next(each for each in (PS, RING) if each.sync == of)
                findings.append(
                    timed(
                        f"{model}: communication time, {way.title} below {name.title} ({name.paper})",
                        f"{paper:.0%}",
                        f"{ours:.1%} (links allow {allowed:.1%})",
                        of_gain(ours, paper, NOISE),
                        pair,
                    )
                )
        for name in (PS, RING):
            pair = [picked(rows, model, way.sync) for way in (ALEPH, name)]
            more = workers_gbps(pair[0]) / workers_gbps(pair[1]) - 1
            over = f"{name.title} ({name.paper})"
            paper = PAPER_USE[model][name.sync]
            findings.append(
                timed(
                    f"{model}: all workers' links carry, {ALEPH.title} above {over}",
                    f"{paper:.0%}",
                    f"{more:.0%}",
                    of_gain(more, paper, NOISE),
                    pair,
                )
            )
        findings += _of_cores(rows, model)
    return findings


def _of_cores(rows: Rows, model: str) -> list[Finding]:
    """Compare CPU times: the paper's Agg2 uses more than with a parameter server, other workers less."""
    ratio = PAPER_CORES[model][ALEPH.sync] / PAPER_CORES[model][PS.sync]
    asked = [("Agg2", PS, ratio - 1, "above")]
    asked += [("worker", way, -PAPER_LESS_CPU[way.sync], "below") for way in (PS, RING)]
    findings = []
    for role, way, paper, side in asked:
        ours, theirs = (cores_of(picked(rows, model, each.sync), role) for each in (ALEPH, way))
        if ours is None or not theirs:
            continue
        sign = 1 if side == "above" else -1
        findings.append(
            timed(
                f"{model}: CPU time of {role}, {ALEPH.title} {side} {way.title} ({way.paper})",
                f"{sign * paper:.0%}",
                f"{sign * (ours / theirs - 1):.0%} ({ours:.3f} and {theirs:.3f} cores)",
                of_gain(sign * (ours / theirs - 1), sign * paper, NOISE),
                (picked(rows, model, each.sync) for each in (ALEPH, way)),
            )
        )
    return findings
