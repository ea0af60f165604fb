"""`testbed reproduce PAPER FIGURE`: repeats a published evaluation, prints the paper's numbers beside ours,
and writes JSON and a plot.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment
from testbed.interpreters import isolated

if TYPE_CHECKING:
    from testbed.aggregation.figure import Figure, Report
    from testbed.records.recorder import Recorder


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.errors import RequestError, TestbedError
    from testbed.plugins.user_class import in_a_line, is_users

    paper, name, rest = _named(argv)
    if not is_users(paper):
        return _reproduce(paper, name, rest)
    _become_the_caller(paper, argv)
    try:
        return _reproduce(paper, name, rest)
    except (TestbedError, BrokenPipeError):
        raise
    except Exception as error:  # a user's code may raise anything
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise RequestError(
            f"{paper} {name}: {in_a_line(error)} ({Path(at.filename).name}:{at.lineno})"
        ) from error


def _become_the_caller(paper: str, argv: list[str]) -> None:
    """Execute this command again as the user who called sudo, for good: root must not run a user's file.
    Return if this process is not root, or root called it directly.
    """
    from testbed.client.caller import Caller
    from testbed.emulation.namespaces import fresh_keys
    from testbed.errors import HostError
    from testbed.jobs.environment import worker_environment

    caller = Caller.of_this_process()
    if os.geteuid() != 0 or caller.uid == 0:
        return
    fresh_keys()
    caller.become()
    words = isolated("-m", "testbed.reproduce", *argv)
    try:
        os.execve(sys.executable, words, worker_environment(os.environ, caller))
    except OSError as error:
        raise HostError(
            f"run {paper} as {caller.user}: {sys.executable}: {error.strerror}; install where {caller.user} "
            f"may read"
        ) from error


def _reproduce(paper: str, name: str, rest: list[str]) -> int:
    from testbed.client.caller import Caller
    from testbed.client.sole_json import sole_json
    from testbed.errors import RequestError
    from testbed.plugins.papers import figures_of
    from testbed.plugins.user_class import is_users
    from testbed.records.recorder import Asked, add_options, recording, store_of

    figures = figures_of(paper)
    if name not in figures:
        raise RequestError(f"no figure {name!r}; accepted: {', '.join(figures)}")
    figure = figures[name]
    parser = environment.Parser(prog=f"testbed reproduce {paper} {name}", description=_described(figure))
    folder = Path("out") / Path(paper).stem
    parser.add_argument(
        "--out",
        type=Path,
        default=folder,
        metavar="DIR",
        help=f"the folder for the JSON file and the plot ({folder})",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the JSON file's content, and everything else on stderr"
    )
    add_options(parser)
    figure.options(parser)
    options = parser.parse_args(rest)
    figure.check(options)
    if figure.on_testbed and os.geteuid() != 0:
        _check_testbed(paper, name)
    out = _folder(options.out)
    caller = Caller.of_this_process()
    inputs = [("system", Path(paper.partition(":")[0]))] if is_users(paper) else []
    asked = Asked("reproduce", [paper, name, *rest], vars(options), inputs)
    with (
        sole_json(options.json) as stdout,
        recording(asked, store_of(options, caller), caller) as record,
    ):
        report = _run(paper, figure, options, out, record)
        if options.json:
            print(json.dumps(report, indent=1), file=stdout)
    return 0


def _described(figure: Figure) -> str | None:
    """Return a figure's text for `--help`: its `about`, or its class's docstring."""
    about: str | None = getattr(figure, "about", None)
    return about or type(figure).__doc__


def _check_testbed(paper: str, name: str) -> None:
    """Raise HostError, with the remedy, if a figure that runs without root has no testbed. The project's own
    figures bring testbeds up, which needs root; a user's figure uses a running one.
    """
    from testbed.client.runtime import running
    from testbed.errors import HostError
    from testbed.plugins.user_class import is_users

    if not is_users(paper):
        words = environment.typed(f"reproduce {paper} {name}")
        raise HostError(f"needs root for network namespaces and XDP; run: sudo {words}")
    if not running():
        raise HostError(
            f"{paper} {name}: needs a testbed, and is never run with root's rights; run: "
            f"sudo {environment.typed('up')} --detach, and then this without sudo"
        )


def _named(argv: list[str]) -> tuple[str, str, list[str]]:
    """Parse the paper and the figure, and return them with the remaining words. Without both, print the known
    ones and end.
    """
    from testbed.plugins.papers import NONE, papers

    known = papers()
    parser = environment.Parser(
        prog="testbed reproduce",
        description="Repeat a published evaluation, print its numbers beside ours, and write JSON "
        "and a plot.",
        epilog=("; ".join(f"{paper} has {_listed(list(known[paper].values()))}" for paper in known) or NONE)
        + "; `testbed reproduce PAPER FIGURE --help` explains a figure",
    )
    parser.add_argument("paper", metavar="PAPER", help=f"{', '.join(known)}, or a system's FILE.py:CLASS")
    parser.add_argument("figure", metavar="FIGURE", help="one of the paper's figures, listed below")
    named = parser.parse_args(argv[:2])
    return named.paper, named.figure, argv[2:]


def _listed(figures: list[Figure]) -> str:
    simulated = ", ".join(figure.name for figure in figures if not figure.on_testbed)
    live = ", ".join(figure.name for figure in figures if figure.on_testbed)
    parts = (
        simulated and f"{simulated} (simulations, which need no root)",
        live and f"{live} (on a testbed)",
    )
    return " and ".join(filter(None, parts))


def _run(paper: str, figure: Figure, options: argparse.Namespace, out: Path, record: Recorder) -> Report:
    """Run the figure; write, show and return its report."""
    from testbed.client.caller import Caller
    from testbed.figures import finished_runs, verdict_gate
    from testbed.figures.document import stamped
    from testbed.plugins.user_class import is_users
    from testbed.records.recorder import none_below
    from testbed.report import document
    from testbed.report.console import standard_output
    from testbed.report.files import replacing

    is_own_live = figure.on_testbed and not is_users(paper)
    runs = out / f"{figure.name}.runs"
    if is_own_live:
        _announce(figure, options, runs)
    began = time.monotonic()
    caller = Caller.of_this_process()
    with record.run() as run:
        with none_below():
            report = figure.run(options, out)
        took_s = time.monotonic() - began
        stamp = stamped(paper, figure.name, took_s, environment.CHECKOUT)
        report |= asdict(stamp) | {"live": figure.on_testbed}
        verdict_gate.numbered(report)
        run.take(report)
        with caller.acting():
            # at once, so that hours of work survive an error in the steps below
            document.write_json(out / f"{figure.name}.json", report)
        if is_own_live:
            finished_runs.end(runs)
        report["claims"] = verdict_gate.claims(figure, report)
        run.take(report)  # again, now with the claims
        with caller.acting():
            document.write_json(out / f"{figure.name}.json", report)
        figure.show(report, standard_output(140))
        picture = out / f"{figure.name}.png"
        with caller.acting(), replacing(picture) as draft:
            figure.draw(report, draft)
        run.keep_copy(picture)
    print(f"{options.out}: {figure.name}.json {figure.name}.png; {took_s:.0f} s")
    return report


def _announce(figure: Figure, options: argparse.Namespace, runs: Path) -> None:
    """Print, before anything runs, how long the figure takes, how loaded the machine is, and how much an
    earlier try of the same command has finished.
    """
    from testbed.figures import finished_runs, machine_load

    asked = {key: value for key, value in vars(options).items() if key not in ("out", "json")}
    finished = finished_runs.begin(runs, finished_runs.stamp(asked, environment.CHECKOUT))
    lasts_s = getattr(figure, "lasts_s", None)
    lines = [machine_load.said(*machine_load.others(), os.cpu_count() or 1)]
    if lasts_s is not None:
        minutes = lasts_s(options) / 60
        lines.insert(0, f"{max(1, round(minutes))} minute{'s' * (round(minutes) > 1)} or more")
    file = runs / finished_runs.FILE
    lines.append(f"what is done is kept in {file}, and the same command goes on behind it")
    if finished:
        lines.append(f"{finished} runs of an earlier try are there")
    for line in lines:
        print(f"{figure.name}: {line}", file=sys.stderr, flush=True)


def _folder(path: Path) -> Path:
    """Make the folder, as the caller. Raises RequestError, before anything runs, if the caller cannot write
    there.
    """
    from testbed.client.caller import Caller
    from testbed.errors import RequestError

    caller = Caller.of_this_process()
    with caller.acting():
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise RequestError(
                f"--out {path}: {error.strerror}; a folder that {caller.user} can write is accepted"
            ) from error
    return path.absolute()


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
