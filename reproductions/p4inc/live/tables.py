"""The live experiment's tables and report documents. Pure apart from printing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reproductions.p4inc.live.claims import (
    CLAIMS,
    CONNECTIONS,
    JCT,
    LESS,
    TRENDS,
    held,
    mean,
    reduction,
    verdict,
)
from reproductions.p4inc.live.plots import MODELS
from reproductions.p4inc.live.throughput import CASES, PAPER, ThroughputReport
from reproductions.reports import Trust
from reproductions.tables import plain
from reproductions.verdicts import Tally
from testbed.figures.verdict_gate import JudgedRow, runs_of
from testbed.systems.p4inc.policies.catalogue import TITLES

if TYPE_CHECKING:
    from rich.console import Console

Report = Mapping[str, Any]


def claims(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each claim of the paper with our numbers by metric, and a verdict on the first metric. Trends
    have counts instead of numbers.
    """
    findings: list[dict[str, Any]] = []
    for claim in CLAIMS:
        ours = {metric: reduction(rows, claim, metric) for metric in claim.metrics}
        word = verdict(ours[claim.metrics[0]], claim.paper)
        schemes = {scheme for pair in claim.pairs for scheme in pair}
        models = (claim.model,) if claim.model else MODELS
        group = [row for row in rows if row["model"] in models and row["scheme"] in schemes]
        about = {
            "text": claim.text,
            "model": claim.model,
            "paper": claim.paper,
            "runs": runs_of(map(JudgedRow.of, group)),
        }
        findings.append({**about, "ours": ours, "verdict": word})
    for trend in TRENDS:
        tally = held(rows, trend)
        counts = {"held": tally.ahead, "tied": tally.level, "of": tally.of}
        runs = runs_of(JudgedRow.of(row) for row in rows if row["scheme"] in (trend.low, *trend.high))
        word = tally.verdict if tally.of else None
        findings.append({"text": trend.text, "model": None, **counts, "verdict": word, "runs": runs})
    return findings


def prediction(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare predictions with measurements, as means over all runs by model and scheme.

    Total JCT and connections are predicted from the submission alone; a job's training time is predicted
    given its placement and first slot. Errors are relative to the measurement.
    """
    predictions = []
    for model, scheme in dict.fromkeys((row["model"], row["scheme"]) for row in rows):
        group = [row for row in rows if (row["model"], row["scheme"]) == (model, scheme)]
        of_jobs = [job["predicted_s"] / job["training_s"] - 1 for row in group for job in row["per_job"]]
        of_runs = [row["predicted"]["ahead_total_jct_s"] / row[JCT] - 1 for row in group]
        predictions.append(
            {
                "model": model,
                "scheme": scheme,
                "runs": len(group),
                "total_jct_s": _mean([row[JCT] for row in group]),
                "predicted_total_jct_s": _mean([row["predicted"]["ahead_total_jct_s"] for row in group]),
                "total_jct_error": _errors(of_runs),
                "connections": _mean([row[CONNECTIONS] for row in group]),
                "predicted_connections": _mean([row["predicted"]["ahead_connections"] for row in group]),
                "training_error": _errors(of_jobs),
            }
        )
    return predictions


def _errors(values: Sequence[float]) -> dict[str, float]:
    return {"mean": _mean(values), "absolute": _mean([abs(value) for value in values])}


def summed(trusts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up several runs' counts of verdicts."""
    reasons: dict[str, int] = {}
    for trust in trusts:
        for name, count in trust["reasons"].items():
            reasons[name] = reasons.get(name, 0) + count
    good, of = (sum(trust[key] for trust in trusts) for key in ("trustworthy", "of"))
    return {"trustworthy": good, "of": of, "reasons": reasons}


def show(report: Report, console: Console) -> None:
    """Print figures 6 and 7."""
    _show_queue(report, console)
    _show_claims(report, console)
    _show_prediction(report, console)
    _show_trust(Trust(**report["trust"]), console)
    costs = report["costs"]
    console.print(
        f"Processes: {costs['start_up_s']:.2f} s to start for each worker of a job, "
        f"{costs['handling_s']:.2f} s around its training, "
        f"{costs['leaving_s']:.2f} s until its hosts are free."
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


def _show_queue(report: Report, console: Console) -> None:
    rows = report["rows"]
    columns = ("jobs", "total JCT s", "least", "most", "less start-ups", "connections", "with INC")
    table = plain("Figures 6 and 7: means over the runs", "", *columns)
    for model, jobs in dict.fromkeys((row["model"], row["jobs"]) for row in rows):
        for scheme in dict.fromkeys(row["scheme"] for row in rows):
            cells = [
                row for row in rows if (row["model"], row["jobs"], row["scheme"]) == (model, jobs, scheme)
            ]
            totals = [row[JCT] for row in cells]
            rest = [
                mean(rows, model, jobs, scheme, metric) or 0.0 for metric in (LESS, CONNECTIONS, "inc_jobs")
            ]
            texts = [f"{value:.1f}" for value in (_mean(totals), min(totals), max(totals), *rest)]
            table.add_row(f"{MODELS[model]}, {TITLES[scheme]}", str(jobs), *texts)
    console.print(table)


def _show_claims(report: Report, console: Console) -> None:
    jobs = sorted({row["jobs"] for row in report["ahead"]["rows"]})
    simulated = f"simulated, {', '.join(map(str, jobs)) or 'no'} jobs"
    table = plain("What the paper says", "", "paper", "ours", "less start-ups", "", simulated, "")
    for claim, foreseen in zip(report["claims"], report["ahead"]["claims"], strict=True):
        if claim["verdict"] is None and foreseen["verdict"] is None:
            continue  # a scheme or a model was not run
        if "held" in claim:
            texts = ["always", _count(claim), "", claim["verdict"] or "", _count(foreseen)]
        else:
            ours = claim["ours"]
            metric = CONNECTIONS if CONNECTIONS in ours else JCT
            texts = [
                f"{claim['paper']:.1%}",
                _percent(ours[metric]),
                _percent(ours[LESS]) if LESS in ours else "",
            ]
            texts += [claim["verdict"] or "", _percent(foreseen["ours"][metric])]
        name = f"{MODELS[claim['model']]}: " if claim["model"] else ""
        table.add_row(f"{name}{claim['text']}", *texts, foreseen["verdict"] or "")
    if table.row_count:
        console.print(table)


def _count(claim: Mapping[str, Any]) -> str:
    return str(Tally(claim["held"], claim["tied"], claim["of"])) if claim["of"] else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:.1%}"  # + 0.0 avoids "-0.0 %"


def _show_prediction(report: Report, console: Console) -> None:
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
    for means in report["prediction"]:
        texts = [f"{means[key]:.1f}" for key in (JCT, "predicted_total_jct_s")]
        texts += _signed_and_absolute(means["total_jct_error"])
        texts += [f"{means[key]:.1f}" for key in ("connections", "predicted_connections")]
        texts += _signed_and_absolute(means["training_error"])
        table.add_row(f"{MODELS[means['model']]}, {TITLES[means['scheme']]}", *texts)
    console.print(table)
    console.print(
        "Errors are of each run's total JCT, and of each job's training given its placement and first slot."
    )


def _signed_and_absolute(errors: Mapping[str, float]) -> list[str]:
    return [f"{errors['mean']:+.1%}", f"{errors['absolute']:.1%}"]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _show_trust(trust: Trust, console: Console) -> None:
    reasons = ", ".join(f"{name} ({count})" for name, count in trust.reasons.items())
    console.print(
        f"verdict: {trust.trustworthy} of {trust.of} jobs trustworthy"
        + (f"; not: {reasons}" if reasons else "")
    )
