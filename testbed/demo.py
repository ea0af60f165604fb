"""`testbed demo`: brings a testbed up, trains one real job over it with each kind of synchronisation, reports, takes it down."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed import environment

# name in the report -> how gradients are summed, and where the workers are; the last one needs the optical switch
JOBS = {"inc": ("inc", "u1:4"), "ring": ("ring", "u1:4"), "ps": ("ps", "u1:4"), "inc-across": ("inc", "u1:2,u2:2")}
ACCURACY = 0.97
SCRIPT = environment.CHECKOUT / "workloads" / "jobs" / "digits.py"


def main(argv: list[str]) -> int:
    """The exit code; see testbed/errors.py."""
    parser = argparse.ArgumentParser(prog="testbed demo", description=__doc__)
    parser.add_argument("--config", default="default", help="a ready configuration or a file")
    parser.add_argument(
        "--place", help="where the workers of all jobs go, such as u1:2,u2:2; without it, see the report"
    )
    parser.add_argument("--epochs", type=int, help="of training, instead of the job's own number")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for report.json and the plots")
    options = parser.parse_args(argv)

    from testbed.errors import HostError, RequestError, TestbedError
    from testbed.jobs.placement import parse_place
    from testbed.report import document, host
    from testbed.runtime import Caller
    from testbed.topology import catalogue

    if options.epochs is not None and options.epochs < 1:
        raise RequestError(f"--epochs {options.epochs}: at least 1 is accepted")
    if options.place:
        parse_place(options.place)
    topology = catalogue.find(options.config)
    if os.geteuid() != 0:
        raise HostError("needs root for network namespaces and XDP; run: sudo testbed demo")
    caller = Caller.of_this_process()
    out = options.out.absolute()
    with caller.acting():
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(
                f"--out {options.out}: {error.strerror}; a folder that {caller.user} can write is accepted"
            ) from error

    name = f"demo-{os.getpid()}"
    runs: dict[str, dict[str, Any]] = {}
    trainings: dict[str, dict[str, Any]] = {}
    with running(name, options.config):
        jobs = {job: (sync, options.place or place) for job, (sync, place) in JOBS.items()}
        if options.place:
            del jobs["inc-across"]
        for number, (job, (sync, place)) in enumerate(jobs.items(), 1):
            print(f"\n[{number}/{len(jobs)}] digits with {sync}, workers at {place}", flush=True)
            result, trained = out / f"{job}.run.json", out / f"{job}.training.json"
            words = ["--place", place, "--sync", sync, "--json", str(result), str(SCRIPT), "--out", str(trained)]
            words += ["--epochs", str(options.epochs)] if options.epochs else []
            if command("run", "--name", name, *words):
                raise TestbedError(f"train with {sync}: the job failed; its lines are above")
            runs[job], trainings[job] = json.loads(result.read_text()), json.loads(trained.read_text())

    report = document.document(host.facts(), topology, runs, trainings)
    from testbed.report import plots, tables

    with caller.acting():
        document.write_json(out / "report.json", report)
        pictures = plots.draw_all(report, out)
    from rich.console import Console

    print()
    tables.show(report, Console(width=None if sys.stdout.isatty() else 120))
    print(f"{options.out}: report.json {' '.join(path.name for path in pictures)}")
    if failures := document.below_threshold(report, ACCURACY):
        raise TestbedError("; ".join(failures))
    return 0


@contextlib.contextmanager
def running(name: str, config: str) -> Iterator[None]:
    """A testbed of this name for as long as the block lasts, however that ends."""
    from testbed.errors import TestbedError, from_exit_code

    began = time.monotonic()
    code = command("up", "--detach", "--name", name, "--config", config)
    if code:
        raise from_exit_code(code, f"bring up {config}: it failed; its lines are above")
    try:
        yield
    finally:
        ended = command("down", "--name", name)
        print(f"up for {time.monotonic() - began:.0f} s", flush=True)
    if ended:
        raise TestbedError(f"take {name} down: exit code {ended}")


def command(*words: str) -> int:
    """Another testbed command, its output shown as it comes."""
    return subprocess.run([sys.executable, "-m", f"testbed.{words[0]}", *words[1:]], check=False).returncode


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
