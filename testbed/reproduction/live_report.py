"""The live experiment's tables and documents. Pure, but for printing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from testbed.reproduction.live_claims import CLAIMS, CONNECTIONS, JCT, LESS, mean, reduction
from testbed.reproduction.live_plots import MODELS
from testbed.reproduction.live_throughput import CASES, PAPER, ratio
from testbed.scheduling.catalogue import TITLES

if TYPE_CHECKING:
    from rich.console import Console

Report = Mapping[str, Any]
_METRICS = {JCT: "as measured", LESS: "less start-ups", CONNECTIONS: "connections"}


def claims(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each claim of the paper with our numbers, by metric."""
    return [
        {
            "text": claim.text,
            "model": claim.model,
            "paper": claim.paper,
            "ours": {metric: reduction(rows, claim, metric) for metric in claim.metrics},
        }
        for claim in CLAIMS
    ]


def summed(trusts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several runs' verdicts."""
    reasons: dict[str, int] = {}
    for trust in trusts:
        for name, count in trust["reasons"].items():
            reasons[name] = reasons.get(name, 0) + count
    good, of = (sum(trust[key] for trust in trusts) for key in ("trustworthy", "of"))
    return {"trustworthy": good, "of": of, "reasons": reasons}


def show(report: Report, console: Console) -> None:
    if report["figure"] == "fig5":
        _show_throughput(report, console)
    else:
        _show_queue(report, console)
        _show_claims(report, console)
        _show_prediction(report, console)
    _show_trust(report, console)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _show_throughput(report: Report, console: Console) -> None:
    rows = report["rows"]
    by = {(row["model"], row["case"]): row for row in rows}
    names = [case.title for case in CASES]
    table = _table(
        "Figure 5: images/s of two workers, and INC's ratio over noINC", "", *names, "ratio", "at 10 Gb/s", "paper"
    )
    for model in dict.fromkeys(row["model"] for row in rows):
        found = [f"{by[model, case.name]['images_per_s']:.1f}" for case in CASES]
        ratios = [
            f"{ratio(rows, model, c):.2f} ({ratio(rows, model, c, 'predicted_ms'):.2f})" for c in ("ps", "ps-10g")
        ]
        table.add_row(MODELS[model], *found, *ratios, f"{PAPER[model]:g}")
    console.print(table)
    console.print("In parentheses what was predicted.")


def _show_queue(report: Report, console: Console) -> None:
    rows = report["rows"]
    columns = ("jobs", "total JCT s", "less start-ups", "connections", "with INC", "predicted JCT", "connections")
    table = _table("Figures 6 and 7: means over the runs", "", *columns)
    for model, jobs in dict.fromkeys((row["model"], row["jobs"]) for row in rows):
        for scheme in dict.fromkeys(row["scheme"] for row in rows):
            found = [row for row in rows if (row["model"], row["jobs"], row["scheme"]) == (model, jobs, scheme)]
            values = [mean(rows, model, jobs, scheme, metric) or 0.0 for metric in (JCT, LESS, CONNECTIONS, "inc_jobs")]
            ahead = [
                math.fsum(row["predicted"][key] for row in found) / len(found)
                for key in ("ahead_total_jct_s", "ahead_connections")
            ]
            texts = [f"{value:.1f}" for value in (*values, *ahead)]
            table.add_row(f"{MODELS[model]}, {TITLES[scheme]}", str(jobs), *texts)
    console.print(table)


def _show_claims(report: Report, console: Console) -> None:
    jobs = sorted({row["jobs"] for row in report["ahead"]["rows"]})
    simulated = f"simulated, {', '.join(map(str, jobs)) or 'no'} jobs"
    table = _table("Reductions", "", "paper", "ours", "less start-ups", simulated)
    for claim, foreseen in zip(report["claims"], report["ahead"]["claims"], strict=True):
        ours = claim["ours"]
        metric = CONNECTIONS if CONNECTIONS in ours else JCT
        texts = [_percent(ours.get(metric)), _percent(ours.get(LESS)), _percent(foreseen["ours"].get(metric))]
        table.add_row(f"{MODELS.get(claim['model'], 'both')}: {claim['text']}", f"{claim['paper']:.1%}", *texts)
    console.print(table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _show_prediction(report: Report, console: Console) -> None:
    """Per scheme: errors of a job's training time, and of the whole run's total JCT."""
    table = _table(
        "Predicted against measured", "", "training, mean error", "absolute", "total JCT, mean error", "absolute"
    )
    rows = report["rows"]
    for model, scheme in dict.fromkeys((row["model"], row["scheme"]) for row in rows):
        found = [row for row in rows if (row["model"], row["scheme"]) == (model, scheme)]
        of_jobs = [job["predicted_s"] / job["training_s"] - 1 for row in found for job in row["per_job"]]
        of_runs = [row["predicted"]["ahead_total_jct_s"] / row[JCT] - 1 for row in found]
        texts = [
            f"{value:+.1%}" if sign else f"{value:.1%}"
            for errors in (of_jobs, of_runs)
            for sign, value in ((True, _mean(errors)), (False, _mean([abs(error) for error in errors])))
        ]
        table.add_row(f"{MODELS[model]}, {TITLES[scheme]}", *texts)
    console.print(table)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _show_trust(report: Report, console: Console) -> None:
    trust = report["trust"]
    reasons = ", ".join(f"{name} ({count})" for name, count in trust["reasons"].items())
    console.print(
        f"verdict: {trust['trustworthy']} of {trust['of']} jobs trustworthy" + (f"; not: {reasons}" if reasons else "")
    )
    if report["figure"] != "fig5":
        costs = report["costs"]
        console.print(
            f"Start-up of a process: {costs['start_up_s']:.1f} s for each worker of a job; {costs['handling_s']:.1f} s around training."
        )
