"""`testbed demo`: brings a testbed up, trains one real job over it with each kind of synchronisation, writes
a report, and ends it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.client.caller import Caller
    from testbed.messages.report import DemoReport
    from testbed.topology.model import Topology

ACCURACY = 0.97
WORKERS = 4
EPOCHS = 4
SCRIPT = environment.CHECKOUT / "workloads" / "jobs" / "digits.py"


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.client.single_run import Once

    parser = environment.Parser(
        prog="testbed demo",
        description="Bring a testbed up, train one real job over it with each kind of synchronisation, "
        "report, and end it.",
    )
    parser.add_argument(
        "--config", default="demo", metavar="FILE", help="a configuration, as for `testbed up` (demo)"
    )
    parser.add_argument(
        "--place",
        action=Once,
        metavar="UNIT:WORKERS,...",
        help="the units of all jobs' workers, such as u1:2,u2:2; without it, first one unit, then two",
    )
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, metavar="N", help="epochs of training (%(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="the folder for report.html, report.json and the plots (out/demo)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print report.json's content, and everything else on stderr"
    )
    options = parser.parse_args(argv)

    from testbed.client.caller import Caller
    from testbed.client.sole_json import sole_json
    from testbed.errors import HostError, RequestError, TestbedError
    from testbed.jobs.placement import parse_place
    from testbed.messages.coding import as_json
    from testbed.report import document
    from testbed.up import asked_at_up, topology_of_config

    if options.epochs < 1:
        raise RequestError(f"--epochs {options.epochs}: at least 1 is accepted")
    if options.place:
        parse_place(options.place)
    caller = Caller.of_this_process()
    topology = topology_of_config(options.config, caller, asked_at_up())
    if os.geteuid() != 0:
        raise HostError(f"needs root for network namespaces and XDP; run: sudo {environment.typed('demo')}")
    out = options.out.absolute()
    with caller.acting():
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(
                f"--out {options.out}: {error.strerror}; a folder that {caller.user} can write is accepted"
            ) from error

    with sole_json(options.json) as stdout:
        report = _train_all(options, topology, out, caller)
        if options.json:
            print(json.dumps(as_json(report), indent=1), file=stdout)
    if failures := document.below_threshold(report, ACCURACY):
        raise TestbedError("; ".join(failures))
    return 0


def _train_all(options: argparse.Namespace, topology: Topology, out: Path, caller: Caller) -> DemoReport:
    """Train with each system on a testbed that ends with this call; show, write and return the report."""
    from testbed.api.files import series_path
    from testbed.client.temporary import command, running
    from testbed.errors import from_exit_code
    from testbed.messages.coding import decode
    from testbed.messages.result import RunResult
    from testbed.report import document, host, page, plots, tables
    from testbed.report.console import standard_output

    name = f"demo-{os.getpid()}"
    trainings: dict[str, document.Training] = {}
    jobs = jobs_on(topology, options.place)
    with running(name, options.config, "--scale", str(topology.scale)):  # measured once
        for number, (job, (sync, place)) in enumerate(jobs.items(), 1):
            print(f"\n[{number}/{len(jobs)}] digits with {sync}, workers at {place}", flush=True)
            result, trained = out / f"{job}.run.json", out / f"{job}.training.json"
            words = [
                "--preload",
                "--place",
                place,
                "--sync",
                sync,
                "--json",
                str(result),
                str(SCRIPT),
                "--out",
                str(trained),
            ]
            # volumes are scaled, times are not: each byte of these gradients stands for `scale` bytes
            words += ["--epochs", str(options.epochs), "--scale", str(topology.scale)]
            if code := command("run", "--name", name, *words):
                raise from_exit_code(code, f"train with {sync}: the job failed; its lines are above")
            with caller.acting():
                run = decode(RunResult, json.loads(result.read_text()), f"{sync}: result")
                trainings[job] = document.Training(run, json.loads(trained.read_text()))

    report = document.document(host.facts(), topology, trainings)
    with caller.acting():
        document.write_json(out / "report.json", report)
        series = {job: series_path(out / f"{job}.run.json") for job in jobs}
        pictures = plots.draw_all(report, out, series)
        page.write(out / "report.html", report, pictures)
    print()
    tables.show(report, standard_output(120))
    print(f"{options.out}: report.html report.json {' '.join(path.name for path in pictures)}")
    return report


def jobs_on(topology: Topology, place: str | None) -> dict[str, tuple[str, str]]:
    """Return, by name in the report, each job's system and its workers' place: every system in the first
    unit, with up to 4 workers, and those that ask for it once more across the optical switch, if there is a
    second unit.

    With a place of the user's own, every system there. Raises RequestError if there is no host for the
    parameter server.
    """
    from testbed.errors import RequestError
    from testbed.plugins.shown_jobs import shown_jobs

    shown = shown_jobs()
    if place:
        return {name: (job.system, place) for name, job in shown.items() if not job.across}
    first, *others = topology.units
    workers = min(WORKERS, len(first.members), len(topology.host_names) - 1)
    if workers < 1:
        raise RequestError(
            f"{topology.name}: 1 host; at least 2 are accepted, one of them for a parameter server"
        )
    half = workers // 2
    spread = f"{first.name}:{half},{others[0].name}:{half}" if others else ""
    fits = half and others and len(others[0].members) >= half and len(topology.host_names) > 2 * half
    return {
        name: (job.system, spread if job.across else f"{first.name}:{workers}")
        for name, job in shown.items()
        if fits or not job.across
    }


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
