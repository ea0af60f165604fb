"""Table I and figures 8 to 12 as experiments. Heavy modules are imported only when a figure is used."""

from __future__ import annotations

import math
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import Chart, Experiment, ExperimentOption
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.p4inc.simulated.report import SweepReport
    from testbed.systems.p4inc.simulator.coflows import Coflow
    from testbed.systems.p4inc.simulator.settings import Setting

NAMES = ("table1", "fig8", "fig9", "fig10", "fig11", "fig12")
READING = (
    "batch, jobs of many iterations, or printed, the paper's numbers as they stand, with -all or -needed for "
    "the steps that FCFS and TW give alike (batch); docs/studies/p4inc-aoi.md"
)
DECLARED = (
    ExperimentOption("seeds", "random workloads, each for all schemes (3)", usual=3, accepted=(1, math.inf)),
    ExperimentOption(
        "jobs-in-parallel", "processes (one per core)", usual=os.cpu_count() or 1, accepted=(1, math.inf)
    ),
    ExperimentOption("trace", "the Facebook coflow trace, for fig9", Path, "FILE"),
    ExperimentOption("reading", READING, str, "NAME", usual="batch"),
    ExperimentOption(
        "set",
        "a number of the setting, such as job_count=200,400; may be repeated",
        str,
        "NAME=VALUE",
        repeated=True,
    ),
    ExperimentOption("time-limit", "of the MILP, for each run of it (120)", float, "S", usual=120.0),
)


def _complete(figure: str, options: Namespace) -> None:
    """Raise RequestError for an invalid option, or for a setting whose jobs cannot exist, before
    anything runs.
    """
    from testbed.systems.p4inc.simulator.settings import READINGS

    if options.reading not in READINGS:
        raise RequestError(f"--reading {options.reading}: accepted: {', '.join(READINGS)}")
    if not 0 < options.time_limit < float("inf"):
        raise RequestError(f"--time-limit {options.time_limit:g}: seconds above 0 are accepted")
    setting, trace = _asked(figure, options)
    for _, swept in setting.swept():
        swept.jobs(1, trace)


def _rows(figure: str, options: Namespace, _: Path) -> SweepReport:
    from reproductions.p4inc.simulated import sweep
    from reproductions.p4inc.simulated.report import SweepOptions

    setting, trace = _asked(figure, options)
    runs = sweep.shown(
        setting,
        range(1, options.seeds + 1),
        trace,
        processes=options.jobs_in_parallel,
        time_limit_s=options.time_limit,
    )
    written = SweepOptions(options.reading, options.time_limit, options.jobs_in_parallel, options.set)
    return sweep.document(setting, runs, trace, options=written)


def _asked(figure: str, options: Namespace) -> tuple[Setting, tuple[Coflow, ...]]:
    from testbed.systems.p4inc.simulator.settings import READINGS, SETTINGS

    setting = SETTINGS[figure].having(READINGS[options.reading]).reading(options.set)
    return setting, _trace(setting, options.trace)


def _trace(setting: Setting, path: Path | None) -> tuple[Coflow, ...]:
    from testbed.client.caller import Caller
    from testbed.systems.p4inc.simulator import coflows

    if setting.kind != "mapreduce":
        if path is not None:
            raise RequestError(f"--trace {path}: {setting.name} draws its jobs from no trace; fig9 does")
        return ()
    if path is None:
        raise RequestError(
            f"{setting.name} draws its jobs from the Facebook coflow trace; --trace FILE is accepted"
        )
    with Caller.of_this_process().acting():
        return coflows.load(path)


def _claims(figure: str, report: SweepReport) -> list[Finding]:
    from reproductions.p4inc.simulated.claims import findings
    from reproductions.p4inc.simulated.means import BoundedSweep
    from reproductions.p4inc.simulated.trials import read

    return findings(figure, BoundedSweep([read(run) for run in report.runs]))


def _chart() -> Chart[SweepReport]:
    from reproductions.p4inc.simulated import plots, tables
    from reproductions.p4inc.simulated.report import SweepReport

    return Chart(SweepReport, tables.show, plots.draw)


EXPERIMENTS = tuple(
    Experiment(
        name=name,
        on_testbed=False,
        about="Runs every scheme of a figure of section VII-C with every seed at every value, in a "
        "simulation. What was chosen, and why: docs/studies/p4inc-aoi.md.",
        declared=DECLARED,
        rows=_rows,
        findings=_claims,
        chart=_chart,
        complete=_complete,
    )
    for name in NAMES
)
