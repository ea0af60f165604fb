"""Tables of the live experiments for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reproductions.aleph.live.accuracy import LearningReport
from reproductions.aleph.live.example import ExampleReport
from reproductions.aleph.live.setting import WAYS
from reproductions.aleph.live.training import PAPER_CORES, PAPER_S, ROLES, TrainingReport, TrainingRow, picked
from reproductions.tables import plain, plain_claims, show_trust

if TYPE_CHECKING:
    from rich.console import Console

TITLES = {way.sync: way.title for way in WAYS}


def show_example(report: ExampleReport, console: Console) -> None:
    """Print table 1."""
    table = plain("Table 1: 4.2 Gb of each worker summed", "", "seconds", "paper's", "links allow")
    for row in report.rows:
        table.add_row(row.title, f"{row.seconds:.3f}", f"{row.paper_s:.2f}", f"{row.bound_ms / 1e3:.3f}")
    console.print(table)
    _show_end(report, console)


def show_training(report: TrainingReport, console: Console) -> None:
    """Print figures 9 to 11."""
    names = list(dict.fromkeys(ROLES.values()))
    columns = (
        "ms",
        "paper's",
        "links allow",
        *(f"{name}, Gb/s" for name in names),
        "cores busy",
    )
    table = plain("Section 6.3: communication of an iteration", "", *columns)
    for row in report.rows:
        paper_s = PAPER_S[row.model].get(row.way) if row.profile == "none" else None
        computing = f", computing {row.compute_ms:.0f} ms" if row.profile != "none" else ""
        table.add_row(
            f"{row.model}, {TITLES[row.way]}{computing}",
            f"{row.iteration_ms:.1f}",
            "" if paper_s is None else f"{paper_s * 1e3:.0f}",
            f"{row.bound_ms:.1f}",
            *(f"{row.roles[name].gbps:.1f}" if name in row.roles else "" for name in names),
            f"{row.cores_busy:.2f}",
        )
    console.print(table)
    _show_cores([row for row in report.rows if row.profile == "none"], names, console)
    _show_end(report, console)


def _show_cores(rows: Sequence[TrainingRow], names: Sequence[str], console: Console) -> None:
    """Print the cores that each role uses, beside the paper's number for its Agg2."""
    title = "Figure 10: cores of a host: its processes + the kernel for its devices"
    table = plain(title, "", *names, "the paper's Agg2")
    for row in rows:
        paper = PAPER_CORES[row.model].get(row.way)
        known = [] if row.cores_unknown else [row.roles[name].cores for name in names]
        taken = [f"{cores.process:.3f} + {cores.kernel:.3f}" for cores in known if cores is not None]
        cells = taken or ["not known"] * len(names)
        title = f"{row.model}, {TITLES[row.way]}"
        table.add_row(title, *cells, "" if paper is None else f"{paper:g}")
    console.print(table)
    for why in dict.fromkeys(row.cores_unknown for row in rows if row.cores_unknown):
        console.print(f"Figure 10: cores by role are not known: {why}")


def show_learning(report: LearningReport, console: Console) -> None:
    """Print figure 12."""
    table = plain("Figure 12: accuracy by communication time", "", "epochs", "accuracy", "communication, s")
    for row in report.rows:
        epochs, accuracy = str(len(row.accuracy)), f"{row.accuracy[-1]:.1%}"
        table.add_row(row.title, epochs, accuracy, f"{row.communication_s[-1]:.1f}")
    console.print(table)
    _show_end(report, console)


def _show_end(report: ExampleReport | TrainingReport | LearningReport, console: Console) -> None:
    console.print(plain_claims(report.claims))
    show_trust(report.trust, console)


def example_headline(report: ExampleReport) -> str:
    """Summarise table 1 in a sentence."""
    by = {row.way: f"{row.seconds:.2f} s" for row in report.rows}
    return f"A sum takes {by['aleph']} by ALEPH, {by['ring']} by a ring, {by['ps']} by a server"


def learning_headline(report: LearningReport) -> str:
    """Summarise figure 12 in a sentence."""
    by = {row.way: f"{row.communication_s[-1]:.0f} s" for row in report.rows}
    return f"Communication took {by['aleph']} by ALEPH, {by['ring']} by a ring, {by['ps']} by a server"


def training_headline(report: TrainingReport) -> str:
    """Summarise figures 9 to 11 in a sentence about the runs of `headline_rows`."""
    ours, *others = headline_rows(report)
    cuts = " and ".join(f"{1 - ours.iteration_ms / row.iteration_ms:.0%}" for row in others)
    return f"{ours.model}: ALEPH communicates {cuts} less long than a parameter server and a ring"


def headline_rows(report: TrainingReport) -> list[TrainingRow]:
    """Return the first model's runs by ALEPH, a parameter server and a ring, in this order."""
    return [picked(report.rows, report.rows[0].model, way) for way in ("aleph", "ps", "ring")]
