"""`testbed reproduce PAPER FIGURE`: runs a published evaluation again, prints its figures beside ours, writes
JSON and a plot.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.systems.p4inc.simulator.coflows import Coflow
    from testbed.systems.p4inc.simulator.settings import Setting

PAPERS = ("p4inc",)
SIMULATED = ("table1", "fig8", "fig9", "fig10", "fig11", "fig12")
LIVE = ("fig5", "fig6", "fig7")


def main(argv: list[str]) -> int:
    """The exit code; see testbed/errors.py."""
    from testbed.errors import RequestError
    from testbed.systems.p4inc.simulator.settings import READINGS

    if argv[:1] == ["p4inc"] and argv[1:2] and argv[1] in LIVE:
        # the experiment on the testbed has options of its own, and needs root
        code: int = importlib.import_module("testbed.systems.p4inc.figures.live.command").main(
            argv[1], argv[2:]
        )
        return code
    options = _parser().parse_args(argv)
    if options.paper not in PAPERS:
        raise RequestError(f"no paper {options.paper!r}; accepted: {', '.join(PAPERS)}")
    if options.figure not in SIMULATED:
        raise RequestError(f"no figure {options.figure!r}; accepted: {', '.join((*SIMULATED, *LIVE))}")
    for name, value in (("--seeds", options.seeds), ("--jobs-in-parallel", options.jobs_in_parallel)):
        if value < 1:
            raise RequestError(f"{name} {value}: at least 1 is accepted")
    if options.reading not in READINGS:
        raise RequestError(f"--reading {options.reading}: accepted: {', '.join(READINGS)}")
    if not 0 < options.time_limit < float("inf"):
        raise RequestError(f"--time-limit {options.time_limit:g}: seconds above 0 are accepted")
    return _simulate(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="testbed reproduce",
        description="Run a published evaluation again, print its figures beside ours, and write JSON "
        "and a plot.",
        epilog=f"{', '.join(SIMULATED)} are simulations and need no root; {', '.join(LIVE)} run on a "
        "testbed, with options of their own: `testbed reproduce p4inc fig6 --help`",
    )
    parser.add_argument("paper", metavar="PAPER", help=f"of {', '.join(PAPERS)}")
    parser.add_argument("figure", metavar="FIGURE", help=f"of {', '.join((*SIMULATED, *LIVE))}")
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
    parser.add_argument("--out", type=Path, metavar="DIR", help="for the JSON file and the plot (out/PAPER)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="the Facebook coflow trace, for fig9")
    parser.add_argument(
        "--reading",
        default="batch",
        metavar="NAME",
        help="batch, jobs of many iterations, or printed, the paper's numbers as they stand, with -all or "
        "-needed for the steps that FCFS and TW give alike (batch); docs/studies/p4inc-aoi.md",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a number of the setting, such as job_count=200,400; may be repeated",
    )
    parser.add_argument(
        "--time-limit", type=float, default=120.0, metavar="S", help="of the MILP, for each run of it (120)"
    )
    return parser


def _simulate(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from testbed.report import document
    from testbed.systems.p4inc.figures.simulated import plots as p4inc_plots
    from testbed.systems.p4inc.figures.simulated import sweep as simulated
    from testbed.systems.p4inc.figures.simulated import tables as p4inc
    from testbed.systems.p4inc.figures.simulated.points import Point
    from testbed.systems.p4inc.simulator.settings import READINGS, SETTINGS

    setting = SETTINGS[options.figure].having(READINGS[options.reading]).reading(options.set)
    trace = _trace(setting, options.trace)
    out = _folder(options.out or Path("out") / "p4inc")
    console = Console(width=None if sys.stdout.isatty() else 140)
    total = len(setting.values) * len(setting.schemes) * options.seeds
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"{setting.name}, {setting.about}", total=total)

        def on_done(_: Point) -> None:
            progress.advance(bar)

        found = simulated.sweep(
            setting,
            range(1, options.seeds + 1),
            trace,
            processes=options.jobs_in_parallel,
            time_limit_s=options.time_limit,
            on_done=on_done,
        )
    written = {
        "reading": options.reading,
        "time_limit_s": options.time_limit,
        "processes": options.jobs_in_parallel,
        "set": options.set,
    }
    report = simulated.document(
        setting, found, trace, took_s=time.monotonic() - began, checkout=environment.CHECKOUT, options=written
    )
    p4inc.show(report, console)
    document.write_json(out / f"{setting.name}.json", report)
    p4inc_plots.draw(report, out / f"{setting.name}.png")
    print(f"{out}: {setting.name}.json {setting.name}.png")
    return 0


def _trace(setting: Setting, path: Path | None) -> tuple[Coflow, ...]:
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
    return coflows.load(path)


def _folder(path: Path) -> Path:
    from testbed.errors import RequestError

    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise RequestError(
            f"--out {path}: {error.strerror}; a folder that can be written is accepted"
        ) from error
    return path


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
