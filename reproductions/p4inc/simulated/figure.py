"""Table I and figures 8 to 12 as figures of the paper: options, runs, claims. Imports nothing heavy before
it is asked for something.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.aggregation.figure import Report

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.systems.p4inc.simulator.coflows import Coflow
    from testbed.systems.p4inc.simulator.settings import Setting


@dataclass(frozen=True, slots=True)
class SimulatedFigure:
    """Runs every scheme of a figure of section VII-C with every seed at every value, in a simulation. What
    was chosen, and why: docs/studies/p4inc-aoi.md.
    """

    name: str

    @property
    def on_testbed(self) -> bool:
        return False

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--seeds", type=int, default=3, metavar="N", help="random workloads, each for all schemes (3)"
        )
        parser.add_argument(
            "--jobs-in-parallel",
            type=int,
            default=os.cpu_count() or 1,
            metavar="N",
            help="processes (one per core)",
        )
        parser.add_argument("--trace", type=Path, metavar="FILE", help="the Facebook coflow trace, for fig9")
        parser.add_argument(
            "--reading",
            default="batch",
            metavar="NAME",
            help="batch, jobs of many iterations, or printed, the paper's numbers as they stand, with -all "
            "or -needed for the steps that FCFS and TW give alike (batch); docs/studies/p4inc-aoi.md",
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a number of the setting, such as job_count=200,400; may be repeated",
        )
        parser.add_argument(
            "--time-limit",
            type=float,
            default=120.0,
            metavar="S",
            help="of the MILP, for each run of it (120)",
        )

    def check(self, options: argparse.Namespace) -> None:
        from testbed.errors import RequestError
        from testbed.systems.p4inc.simulator.settings import READINGS

        for name, value in (("--seeds", options.seeds), ("--jobs-in-parallel", options.jobs_in_parallel)):
            if value < 1:
                raise RequestError(f"{name} {value}: at least 1 is accepted")
        if options.reading not in READINGS:
            raise RequestError(f"--reading {options.reading}: accepted: {', '.join(READINGS)}")
        if not 0 < options.time_limit < float("inf"):
            raise RequestError(f"--time-limit {options.time_limit:g}: seconds above 0 are accepted")
        setting, trace = self._asked(options)
        for _, swept in setting.swept():
            swept.jobs(1, trace)  # jobs that cannot be are refused before anything runs

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        from reproductions.p4inc.simulated import sweep

        setting, trace = self._asked(options)
        runs = sweep.shown(
            setting,
            range(1, options.seeds + 1),
            trace,
            processes=options.jobs_in_parallel,
            time_limit_s=options.time_limit,
        )
        written = {
            "reading": options.reading,
            "time_limit_s": options.time_limit,
            "processes": options.jobs_in_parallel,
            "set": options.set,
        }
        return sweep.document(setting, runs, trace, options=written)

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.p4inc.simulated.claims import findings
        from reproductions.p4inc.simulated.means import BoundedSweep
        from reproductions.p4inc.simulated.trials import Measured

        sweep = BoundedSweep([Measured(**run) for run in report["runs"]])
        return [asdict(finding) for finding in findings(self.name, sweep)]

    def show(self, report: Report, console: Console) -> None:
        from reproductions.p4inc.simulated import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.p4inc.simulated import plots

        plots.draw(report, path)

    def _asked(self, options: argparse.Namespace) -> tuple[Setting, tuple[Coflow, ...]]:
        from testbed.systems.p4inc.simulator.settings import READINGS, SETTINGS

        setting = SETTINGS[self.name].having(READINGS[options.reading]).reading(options.set)
        return setting, _trace(setting, options.trace)


def _trace(setting: Setting, path: Path | None) -> tuple[Coflow, ...]:
    from testbed.client.caller import Caller
    from testbed.errors import RequestError
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
