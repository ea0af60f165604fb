"""The live experiment's tables and report documents. Pure apart from printing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reproductions.p4inc.live.claims import (
    CLAIMS,
    TRENDS,
    Rows,
    connections,
    held,
    less_start_ups_s,
    mean,
    reductions,
    verdict,
)
from reproductions.p4inc.live.plots import MODELS
from reproductions.p4inc.live.report import (
    GainFinding,
    MeanErrors,
    PredictionMeans,
    QueueReport,
    QueueRow,
    TrendFinding,
    mean_errors,
)
from reproductions.p4inc.live.throughput import CASES, PAPER, ThroughputReport
from reproductions.reports import Trust
from reproductions.tables import plain
from reproductions.verdicts import Tally
from testbed.figures.verdict_gate import runs_of
from testbed.messages.coding import UnsetType
from testbed.systems.p4inc.policies.catalogue import TITLES

if TYPE_CHECKING:
    from rich.console import Console


def claims(rows: Rows) -> list[GainFinding | TrendFinding]:
    """Return each claim of the paper with our numbers, and a verdict on the first of them. Trends have counts
    instead of numbers.
    """
    findings: list[GainFinding | TrendFinding] = []
    for claim in CLAIMS:
        ours = reductions(rows, claim)
        schemes = {scheme for pair in claim.pairs for scheme in pair}
        models = (claim.model,) if claim.model else MODELS
        runs = runs_of(row for row in rows if row.model in models and row.scheme in schemes)
        word = verdict(ours.judged, claim.paper)
        findings.append(GainFinding(claim.text, claim.model, claim.paper, runs, ours, word))
    for trend in TRENDS:
        tally = held(rows, trend)
        runs = runs_of(row for row in rows if row.scheme in (trend.low, *trend.high))
        word = tally.verdict if tally.of else None
        findings.append(TrendFinding(trend.text, None, tally.ahead, tally.level, tally.of, word, runs))
    return findings


def prediction(rows: Sequence[QueueRow]) -> list[PredictionMeans]:
    """Compare predictions with measurements, as means over all runs by model and scheme.

    Total JCT and connections are predicted from the submission alone; a job's training time is predicted
    given its placement and first slot. Errors are relative to the measurement.
    """
    predictions = []
    for model, scheme in dict.fromkeys((row.model, row.scheme) for row in rows):
        group = [row for row in rows if (row.model, row.scheme) == (model, scheme)]
        of_jobs = [job.predicted_s / job.training_s - 1 for row in group for job in row.per_job]
        of_runs = [row.predicted.ahead_total_jct_s / row.total_jct_s - 1 for row in group]
        predictions.append(
            PredictionMeans(
                model=model,
                scheme=scheme,
                runs=len(group),
                total_jct_s=_mean([row.total_jct_s for row in group]),
                predicted_total_jct_s=_mean([row.predicted.ahead_total_jct_s for row in group]),
                total_jct_error=mean_errors(of_runs),
                connections=_mean([row.connections for row in group]),
                predicted_connections=_mean([row.predicted.ahead_connections for row in group]),
                training_error=mean_errors(of_jobs),
            )
        )
    return predictions


def summed(trusts: Sequence[Trust]) -> Trust:
    """Add up several runs' counts of verdicts."""
    reasons: dict[str, int] = {}
    for trust in trusts:
        for name, count in trust.reasons.items():
            reasons[name] = reasons.get(name, 0) + count
    return Trust(sum(trust.trustworthy for trust in trusts), sum(trust.of for trust in trusts), reasons)


def show(report: QueueReport, console: Console) -> None:
    """Print figures 6 and 7."""
    _show_queue(report, console)
    _show_claims(report, console)
    _show_prediction(report, console)
    _show_trust(report.trust, console)
    costs = report.costs
    console.print(
        f"Processes: {costs.start_up_s:.2f} s to start for each worker of a job, "
        f"{costs.handling_s:.2f} s around its training, "
        f"{costs.leaving_s:.2f} s until its hosts are free."
    )


def show_throughput(report: ThroughputReport, console: Console) -> None:
    """Print figure 5."""
    by = {(row.model, row.case): row for row in report.rows}
    findings = {(claim.model, claim.over): claim for claim in report.claims}
    names = [case.title for case in CASES]
    gains = ("gain", "", "gain at 10 Gb/s", "")
    table = plain(
        "Figure 5: images/s of two workers, and INC's gain over noINC", "", *names, "paper's", *gains
    )
    for model in dict.fromkeys(row.model for row in report.rows):
        texts = [f"{by[model, case.name].images_per_s:.1f}" for case in CASES]
        texts.append(f"{PAPER[model]:g}")
        for case in ("ps", "ps-10g"):
            claim = findings[model, case]
            texts += [f"{claim.ours:.2f} ({claim.predicted:.2f})", claim.verdict]
        table.add_row(MODELS[model], *texts)
    console.print(table)
    console.print("In parentheses what was predicted.")
    for case in ("ps", "ps-10g"):
        if whole := findings.get((None, case)):
            console.print(f"{whole.text}: {whole.ours} (paper: {whole.paper}): {whole.verdict}")
    _show_trust(report.trust, console)


def _show_queue(report: QueueReport, console: Console) -> None:
    rows = report.rows
    columns = ("jobs", "total JCT s", "least", "most", "less start-ups", "connections", "with INC")
    table = plain("Figures 6 and 7: means over the runs", "", *columns)
    for model, jobs in dict.fromkeys((row.model, row.jobs) for row in rows):
        for scheme in dict.fromkeys(row.scheme for row in rows):
            cells = [row for row in rows if (row.model, row.jobs, row.scheme) == (model, jobs, scheme)]
            totals = [row.total_jct_s for row in cells]
            rest = [
                mean(rows, model, jobs, scheme, value) or 0.0
                for value in (less_start_ups_s, connections, _inc_jobs)
            ]
            texts = [f"{value:.1f}" for value in (_mean(totals), min(totals), max(totals), *rest)]
            table.add_row(f"{MODELS[model]}, {TITLES[scheme]}", str(jobs), *texts)
    console.print(table)


def _inc_jobs(row: QueueRow) -> float:
    return row.inc_jobs


def _show_claims(report: QueueReport, console: Console) -> None:
    jobs = sorted({row.jobs for row in report.ahead.rows})
    simulated = f"simulated, {', '.join(map(str, jobs)) or 'no'} jobs"
    table = plain("What the paper says", "", "paper", "ours", "less start-ups", "", simulated, "")
    findings = zip(claims(report.rows), report.claims, claims(report.ahead.rows), strict=True)
    for claim, gated, foreseen in findings:
        if gated.verdict is None and foreseen.verdict is None:
            continue  # a scheme or a model was not run
        if isinstance(claim, TrendFinding) and not isinstance(gated.of, UnsetType):
            claim = replace(claim, of=gated.of)
        paper, less = _paper_and_less(claim)
        texts = [paper, _ours(claim), less, gated.verdict or "", _ours(foreseen)]
        name = f"{MODELS[claim.model]}: " if claim.model else ""
        table.add_row(f"{name}{claim.text}", *texts, foreseen.verdict or "")
    if table.row_count:
        console.print(table)


def _paper_and_less(claim: GainFinding | TrendFinding) -> tuple[str, str]:
    """Return the paper's number or word, and our share less start-ups where the claim has one."""
    if isinstance(claim, TrendFinding):
        return "always", ""
    less = claim.ours.total_jct_less_start_ups_s
    return f"{claim.paper:.1%}", "" if isinstance(less, UnsetType) else _percent(less)


def _ours(claim: GainFinding | TrendFinding) -> str:
    if isinstance(claim, GainFinding):
        return _percent(claim.ours.judged)
    return str(Tally(claim.held, claim.tied, claim.of)) if claim.of else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:.1%}"  # + 0.0 avoids "-0.0 %"


def _show_prediction(report: QueueReport, console: Console) -> None:
    columns = (
        "total JCT s",
        "predicted",
        "error",
        "absolute",
        "connections",
        "predicted",
        "training, error",
        "absolute",
    )
    table = plain("Prediction and measurement: means over the runs", "", *columns)
    for means in report.prediction:
        texts = [f"{means.total_jct_s:.1f}", f"{means.predicted_total_jct_s:.1f}"]
        texts += _signed_and_absolute(means.total_jct_error)
        texts += [f"{means.connections:.1f}", f"{means.predicted_connections:.1f}"]
        texts += _signed_and_absolute(means.training_error)
        table.add_row(f"{MODELS[means.model]}, {TITLES[means.scheme]}", *texts)
    console.print(table)
    console.print(
        "Errors are of each run's total JCT, and of each job's training given its placement and first slot."
    )


def _signed_and_absolute(errors: MeanErrors) -> list[str]:
    return [f"{errors.mean:+.1%}", f"{errors.absolute:.1%}"]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _show_trust(trust: Trust, console: Console) -> None:
    reasons = ", ".join(f"{name} ({count})" for name, count in trust.reasons.items())
    console.print(
        f"verdict: {trust.trustworthy} of {trust.of} jobs trustworthy"
        + (f"; not: {reasons}" if reasons else "")
    )
