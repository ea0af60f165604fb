"""`testbed demo`: brings a testbed up, trains one real job over it with each kind of synchronisation,
reports, takes it down.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.topology.model import Topology

ACCURACY = 0.97
WORKERS = 4
EPOCHS = 4
END_S = 15.0  # for a command that was told to end, before it is killed
SYNCS = ("inc", "ring", "ps")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SCRIPT = environment.CHECKOUT / "workloads" / "jobs" / "digits.py"


def main(argv: list[str]) -> int:
    """The exit code; see testbed/errors.py."""
    parser = argparse.ArgumentParser(prog="testbed demo", description=__doc__)
    parser.add_argument("--config", default="demo", help="a ready configuration or a file (%(default)s)")
    parser.add_argument(
        "--place", help="where the workers of all jobs go, such as u1:2,u2:2; without it, see the report"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of training (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo"), help="folder for report.json and the plots"
    )
    options = parser.parse_args(argv)

    from testbed.client.runtime import Caller
    from testbed.errors import HostError, RequestError, TestbedError, from_exit_code
    from testbed.jobs.placement import parse_place
    from testbed.report import document, host
    from testbed.run import series_path
    from testbed.topology import catalogue

    if options.epochs < 1:
        raise RequestError(f"--epochs {options.epochs}: at least 1 is accepted")
    if options.place:
        parse_place(options.place)
    caller = Caller.of_this_process()
    with caller.acting():
        topology = catalogue.find(options.config)
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

    name = f"demo-{os.getpid()}"
    runs: dict[str, dict[str, Any]] = {}
    trainings: dict[str, dict[str, Any]] = {}
    jobs = jobs_on(topology, options.place)
    with running(name, options.config):
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
            # volumes are scaled, times are not: these gradients stand for as many more as links are slower
            words += ["--epochs", str(options.epochs), "--scale", str(topology.scale)]
            if code := command("run", "--name", name, *words):
                raise from_exit_code(code, f"train with {sync}: the job failed; its lines are above")
            runs[job], trainings[job] = json.loads(result.read_text()), json.loads(trained.read_text())

    report = document.document(host.facts(), topology, runs, trainings)
    from testbed.report import plots, tables

    with caller.acting():
        document.write_json(out / "report.json", report)
        series = {job: series_path(out / f"{job}.run.json") for job in jobs}
        pictures = plots.draw_all(report, out, series)
    from rich.console import Console

    print()
    tables.show(report, Console(width=None if sys.stdout.isatty() else 120))
    print(f"{options.out}: report.json {' '.join(path.name for path in pictures)}")
    if failures := document.below_threshold(report, ACCURACY):
        raise TestbedError("; ".join(failures))
    return 0


def jobs_on(topology: Topology, place: str | None) -> dict[str, tuple[str, str]]:
    """Name in the report -> how gradients are summed, and where the workers are: each kind in the first unit
    with as many as 4 workers, and the network's kind once more across the optical switch where there is a
    second unit.

    With a place of the user's own, each kind there. Raises RequestError where a host for the parameter server
    is lacking.
    """
    from testbed.errors import RequestError

    if place:
        return {sync: (sync, place) for sync in SYNCS}
    first, *others = topology.units
    workers = min(WORKERS, first.hosts, len(topology.host_names) - 1)
    if workers < 1:
        raise RequestError(
            f"{topology.name}: 1 host; at least 2 are accepted, one of them for a parameter server"
        )
    jobs = {sync: (sync, f"{first.name}:{workers}") for sync in SYNCS}
    half = workers // 2
    if half and others and others[0].hosts >= half and len(topology.host_names) > 2 * half:
        jobs["inc-across"] = ("inc", f"{first.name}:{half},{others[0].name}:{half}")
    return jobs


@contextlib.contextmanager
def running(name: str, config: str) -> Iterator[None]:
    """A testbed of this name for as long as the block lasts, however that ends: by an error, Ctrl-C, SIGTERM
    or SIGHUP.
    """
    from testbed.client.runtime import Runtime
    from testbed.errors import TestbedError, from_exit_code

    began, ended = time.monotonic(), 0
    with handling(ENDING, _interrupt):
        try:
            if code := command("up", "--detach", "--name", name, "--config", config):
                raise from_exit_code(code, f"bring up {config}: it failed; its lines are above")
            yield
        finally:
            # what is asked now is being done already; `down` inherits this patience
            with handling(ENDING, signal.SIG_IGN):
                if Runtime.of(name).alive():
                    ended = command("down", "--name", name)
                    print(f"up for {time.monotonic() - began:.0f} s", flush=True)
    if ended:
        raise TestbedError(f"take {name} down: exit code {ended}")


def command(*words: str, output: IO[bytes] | None = None) -> int:
    """Another testbed command's exit code, its output shown as it comes, or in a file. It is told to end when
    this process is.
    """
    argv = [sys.executable, "-m", f"testbed.{words[0]}", *words[1:]]
    with subprocess.Popen(argv, stdout=output, stderr=output) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


@contextlib.contextmanager
def handling(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None] | signal.Handlers
) -> Iterator[None]:
    """These signals' handler, for as long as the block lasts."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
