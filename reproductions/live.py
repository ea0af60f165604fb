"""Experiments of any paper that run on a testbed: bring up the testbed for their duration, run commands on it
with the output in a file, make the folder of runs, and sum the runs' verdicts. Owns no experiment.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from reproductions.reports import Trust
from testbed.client import rpc, temporary
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError, TestbedError, from_exit_code
from testbed.messages.coding import decode
from testbed.messages.result import RunResult
from testbed.messages.submission import SubmissionResult
from testbed.messages.verdict import JobVerdict
from testbed.topology.load import load
from testbed.topology.model import Topology

_ANSWER_S = 60.0
Counters = TypeVar("Counters")
"""The type of the statistics that a figure reads."""


class TestbedOfFigures:
    """A running testbed. The output of commands on it is appended to `log`."""

    __test__ = False

    def __init__(self, name: str, topology: Topology, log: Path) -> None:
        self.name, self.topology, self._log = name, topology, log

    def command(self, *words: str) -> None:
        """Run a testbed command. A non-zero exit code raises the error of that code, with the last line
        of output.
        """
        caller = Caller.of_this_process()
        with caller.acting():
            log = self._log.open("ab")
        with log:
            code = temporary.command(words[0], "--name", self.name, *words[1:], output=log)
        if code:
            with caller.acting():
                lines = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise from_exit_code(code, f"testbed {words[0]}: {lines[-1]} (all of it: {self._log})")

    def light_initial_circuits(self) -> None:
        """Set up the configuration's initial circuits, so that every session begins with the same ones."""
        circuits = [list(pair) for pair in self.topology.ocs.circuits]
        rpc.call(Runtime.of(self.name).controller_socket, "apply", timeout_s=_ANSWER_S, circuits=circuits)


def runs_folder(out: Path, figure: str) -> Path:
    """Make the folder in `out` for the files of a figure's runs, as the user who called, and return it.
    RequestError where it cannot be made.
    """
    folder = out / f"{figure}.runs"
    with Caller.of_this_process().acting():
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise RequestError(f"--out {out}: {folder.name}: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def testbed(what: str, configuration: str, folder: Path) -> Iterator[TestbedOfFigures]:
    """Bring up a testbed of this configuration (YAML), written to `folder`, for the duration of the block.
    Its name ends with this process's number.
    """
    file, log = folder / f"{what}.yaml", folder / f"{what}.log"
    with Caller.of_this_process().acting():
        file.write_text(configuration)
        log.write_text("")
    name = f"{what}-{os.getpid()}"
    with temporary.running(name, str(file)):
        with Caller.of_this_process().acting():
            topology = replace(load(file), name=name)
        yield TestbedOfFigures(name, topology, log)


def run_result(file: Path) -> RunResult:
    """Read the result that `testbed run --json` wrote to a file."""
    return decode(RunResult, json.loads(file.read_text()), file.name)


def submission_result(file: Path) -> SubmissionResult:
    """Read the result that `testbed submit --json` wrote to a file."""
    return decode(SubmissionResult, json.loads(file.read_text()), file.name)


def statistics_of(result: RunResult, kind: type[Counters]) -> list[Counters]:
    """Return the statistics of every worker's script that a figure reads, of type `kind`. TestbedError names
    the workers that have none.
    """
    left = [worker.stats for worker in result.workers if worker.stats is not None]
    if len(left) < len(result.workers):
        silent = [str(worker.rank) for worker in result.workers if worker.stats is None]
        raise TestbedError(f"job {result.id}: no statistics of worker {', '.join(silent)}")
    return [decode(kind, each, f"job {result.id}: statistics") for each in left]


def trust(verdicts: Sequence[JobVerdict]) -> Trust:
    """Count trustworthy verdicts, and the others by reason. TestbedError if there are no verdicts."""
    if not verdicts:
        raise TestbedError("no results: nothing was measured")
    reasons: dict[str, int] = {}
    for verdict in verdicts:
        for reason in verdict.reasons:
            reasons[reason.name] = reasons.get(reason.name, 0) + 1
    return Trust(sum(bool(verdict.trustworthy) for verdict in verdicts), len(verdicts), reasons)
