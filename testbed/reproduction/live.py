"""`testbed reproduce p4inc fig5|fig6|fig7`: the paper's experiment (section VII-B) on a testbed that this brings up.

Figures 6 and 7 are of the same runs: either prints and draws both.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.errors import HostError, RequestError
from testbed.report import document, host
from testbed.reproduction import live_ahead, live_fabric, live_plots, live_queue, live_report, live_throughput
from testbed.reproduction.live_fabric import SCALE, trust
from testbed.reproduction.live_model import Kind
from testbed.runtime import Caller
from testbed.scheduling import catalogue
from testbed.topology.load import parse
from workloads import models

VERSION = 1
ITERATIONS = {"resnet50": 25, "vgg16": 20}
"""About 5 s with INC, several slots, and 5 to 11 s without."""


def main(figure: str, argv: list[str]) -> int:
    """The exit code; see testbed/errors.py."""
    options = _parser(figure).parse_args(argv)
    _check(figure, options)
    caller = Caller.of_this_process()
    out: Path = options.out.absolute()
    runs = out / f"{figure}.runs"
    with caller.acting():
        try:
            runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(
                f"--out {options.out}: {error.strerror}; a folder that can be written is accepted"
            ) from error
    began = time.monotonic()
    report = _fig5(options, runs) if figure == "fig5" else _queue(figure, options, runs)
    report |= {"version": VERSION, "paper": "p4inc", "figure": figure, "host": asdict(host.facts())}
    report["took_s"] = time.monotonic() - began
    from rich.console import Console

    live_report.show(report, Console(width=None if sys.stdout.isatty() else 140))
    with caller.acting():
        document.write_json(out / f"{figure}.json", report)
        live_plots.draw(report, out / f"{figure}.png")
    print(f"{options.out}: {figure}.json {figure}.png; {report['took_s']:.0f} s")
    return 0


def _parser(figure: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"testbed reproduce p4inc {figure}", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest experiment that shows something")
    parser.add_argument("--scale", type=int, default=SCALE, help=f"links and gradients are divided by it ({SCALE})")
    parser.add_argument("--out", type=Path, default=Path("out") / "p4inc", metavar="DIR", help="(out/p4inc)")
    parser.add_argument("--iterations", type=int, metavar="N", help="of each job")
    parser.add_argument("--models", type=_words, metavar="A,B", help=f"of {', '.join(models.MODELS)}")
    if figure != "fig5":
        parser.add_argument(
            "--jobs", type=_numbers, default=[6], metavar="N,N", help="jobs of a run (6); the paper's: 10,20,40,60"
        )
        parser.add_argument("--runs", type=int, default=3, metavar="N", help="with another seed each (3)")
        parser.add_argument(
            "--schemes",
            type=_words,
            default=list(live_queue.FOUR),
            metavar="A,B",
            help=f"of {', '.join(catalogue.NAMES)}",
        )
        parser.add_argument(
            "--slot", type=float, default=1.0, metavar="S", help="length of a slot in which a job arrives (1)"
        )
        parser.add_argument("--ports", type=int, default=2, metavar="N", help="optical ports of a rack (2)")
        parser.add_argument("--optical-gbps", type=float, default=40.0, metavar="R", help="declared rate of each (40)")
    return parser


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _check(figure: str, options: argparse.Namespace) -> None:
    """Raises RequestError, or HostError without root."""
    if options.models is None:
        options.models = list(models.MODELS if figure == "fig5" else ITERATIONS)
    if options.quick:
        options.iterations = options.iterations or 6
        options.models = options.models[-2:] if figure == "fig5" else options.models[:1]
        if figure != "fig5":
            options.runs, options.jobs = 1, [3]
    for name, accepted in (("models", models.MODELS), ("schemes", catalogue.NAMES)):
        for word in getattr(options, name, []):
            if word not in accepted:
                raise RequestError(f"--{name} {word}: accepted are {', '.join(accepted)}")
    counts = {"iterations": 5, "scale": 1, "runs": 1, "ports": 1}
    for name, least in counts.items():
        value = getattr(options, name, None)
        if value is not None and value < least:
            raise RequestError(f"--{name} {value}: at least {least} is accepted")
    if figure != "fig5":
        if not 1 <= options.optical_gbps <= 400:
            raise RequestError(f"--optical-gbps {options.optical_gbps:g}: 1 to 400 are accepted")
        if not options.jobs or min(options.jobs) < 1 or not options.models or not options.schemes:
            raise RequestError("--jobs, --models and --schemes each need one or more")
        if not 0.5 <= options.slot <= 60:
            raise RequestError(f"--slot {options.slot:g}: 0.5 to 60 seconds are accepted")
    if os.geteuid() != 0:
        raise HostError(f"needs root for network namespaces and XDP; run: sudo testbed reproduce p4inc {figure}")


def _fig5(options: argparse.Namespace, runs: Path) -> dict[str, Any]:
    iterations = options.iterations or 12
    with _progress("figure 5", len(options.models) * len(live_throughput.CASES)) as on_done:
        rows = live_throughput.measure(options.models, iterations, options.scale, runs, on_done)
    return {"rows": rows, "iterations": iterations, "scale": options.scale, "trust": trust(rows)}


def _queue(figure: str, options: argparse.Namespace, runs: Path) -> dict[str, Any]:
    kinds = [Kind(model, options.iterations or ITERATIONS.get(model, 20)) for model in options.models]
    points = [
        live_queue.Point(kind, scheme, jobs, seed)
        for kind in kinds
        for jobs in options.jobs
        for seed in range(1, options.runs + 1)
        for scheme in options.schemes
    ]
    with _progress("figures 6 and 7", len(points)) as on_done:
        config = live_fabric.configuration(options.scale, options.optical_gbps, options.ports)
        rows, costs = live_queue.sweep(points, options.slot, config, runs, on_done)
    jobs = () if options.quick else live_ahead.JOBS
    seeds = range(1, options.runs + 1)
    foreseen = list(live_ahead.rows(parse(config, "fig7"), kinds, jobs, seeds, options.schemes, options.slot))
    return {
        "rows": rows,
        "claims": live_report.claims(rows),
        "costs": asdict(costs),
        "ahead": {"rows": foreseen, "claims": live_report.claims(foreseen)},
        "trust": live_report.summed([row["trust"] for row in rows]),
        "iterations": {kind.model: kind.iterations for kind in kinds},
        "runs": options.runs,
        "slot_s": options.slot,
        "scale": options.scale,
        "optical_ports": options.ports,
        "optical_gbps": options.optical_gbps,
    }


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar where there is a terminal, else a line for each run."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=total)
        done = 0

        def on_done(name: str) -> None:
            nonlocal done
            done += 1
            progress.update(bar, advance=1, description=name)
            if not console.is_terminal:
                print(
                    f"{what}: {done}/{total} after {time.monotonic() - began:.0f} s: {name}",
                    file=sys.stderr,
                    flush=True,
                )

        yield on_done
