"""The live experiments as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reproductions.aleph.live.setting import WAYS
from reproductions.aleph.live.training import PAPER_CORES, PAPER_S, ROLES, picked
from reproductions.tables import plain, plain_claims, show_trust

if TYPE_CHECKING:
    from rich.console import Console

Report = Mapping[str, Any]
TITLES = {way.sync: way.title for way in WAYS}


def show(report: Report, console: Console) -> None:
    """Print a report of any of the live figures."""
    rows = report["rows"]
    if report["figure"] == "table1":
        _show_example(rows, console)
    elif report["figure"] == "fig12":
        _show_accuracy(rows, console)
    else:
        _show_training(rows, console)
    console.print(plain_claims(report["claims"]))
    show_trust(report["trust"], console)


def _show_example(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = plain("Table 1: 4.2 Gb of each worker summed", "", "seconds", "paper's", "links allow")
    for row in rows:
        table.add_row(
            row["title"], f"{row['seconds']:.3f}", f"{row['paper_s']:.2f}", f"{row['bound_ms'] / 1e3:.3f}"
        )
    console.print(table)


def _show_training(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    names = list(dict.fromkeys(ROLES.values()))
    columns = (
        "ms",
        "paper's",
        "links allow",
        *(f"{name}, Gb/s" for name in names),
        "cores busy",
    )
    table = plain("Section 6.3: communication of an iteration", "", *columns)
    for row in rows:
        paper_s = PAPER_S[row["model"]].get(row["way"]) if row["profile"] == "none" else None
        computing = f", computing {row['compute_ms']:.0f} ms" if row["profile"] != "none" else ""
        table.add_row(
            f"{row['model']}, {TITLES[row['way']]}{computing}",
            f"{row['iteration_ms']:.1f}",
            "" if paper_s is None else f"{paper_s * 1e3:.0f}",
            f"{row['bound_ms']:.1f}",
            *(f"{row['roles'][name]['gbps']:.1f}" if name in row["roles"] else "" for name in names),
            f"{row['cores_busy']:.2f}",
        )
    console.print(table)
    _show_cores([row for row in rows if row["profile"] == "none"], names, console)


def _show_cores(rows: Sequence[Mapping[str, Any]], names: Sequence[str], console: Console) -> None:
    """Print what each role takes of the cores, beside what the paper says of its Agg2."""
    title = "Figure 10: cores of a host: its processes + the kernel for its devices"
    table = plain(title, "", *names, "the paper's Agg2")
    for row in rows:
        paper = PAPER_CORES[row["model"]].get(row["way"])
        taken = [f"{its['process_cores']:.3f} + {its['kernel_cores']:.3f}" for its in _known(row, names)]
        cells = taken or ["not known"] * len(names)
        title = f"{row['model']}, {TITLES[row['way']]}"
        table.add_row(title, *cells, "" if paper is None else f"{paper:g}")
    console.print(table)
    for why in dict.fromkeys(row["cores_unknown"] for row in rows if row["cores_unknown"]):
        console.print(f"Figure 10: cores by role are not known: {why}")


def _known(row: Mapping[str, Any], names: Sequence[str]) -> list[Mapping[str, float]]:
    return [] if row["cores_unknown"] else [row["roles"][name] for name in names]


def _show_accuracy(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = plain("Figure 12: accuracy by communication time", "", "epochs", "accuracy", "communication, s")
    for row in rows:
        table.add_row(
            row["title"],
            str(len(row["accuracy"])),
            f"{row['accuracy'][-1]:.1%}",
            f"{row['communication_s'][-1]:.1f}",
        )
    console.print(table)


def headline(report: Report) -> str:
    """Return what a report says in a sentence."""
    rows = report["rows"]
    if report["figure"] == "table1":
        by = {row["way"]: f"{row['seconds']:.2f} s" for row in rows}
        return f"A sum takes {by['aleph']} by ALEPH, {by['ring']} by a ring, {by['ps']} by a server"
    if report["figure"] == "fig12":
        by = {row["way"]: f"{row['communication_s'][-1]:.0f} s" for row in rows}
        return f"Communication took {by['aleph']} by ALEPH, {by['ring']} by a ring, {by['ps']} by a server"
    model = rows[0]["model"]
    ours, others = picked(rows, model, "aleph"), [picked(rows, model, way) for way in ("ps", "ring")]
    cuts = " and ".join(f"{1 - ours['iteration_ms'] / row['iteration_ms']:.0%}" for row in others)
    return f"{model}: ALEPH communicates {cuts} less long than a parameter server and a ring"


def headline_rows(report: Report) -> list[Mapping[str, Any]]:
    """Return the runs of which that sentence is."""
    rows = report["rows"]
    if report["figure"] in ("table1", "fig12"):
        return list(rows)
    return [picked(rows, rows[0]["model"], way) for way in ("aleph", "ps", "ring")]
