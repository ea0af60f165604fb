"""The rows of tests/privileged/test_stalls.py: a process of a testbed is stopped for 15 s or killed while a
job sums, circuits change, a job starts, and the testbed is asked to end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed.host_commands import keeper
from tests.limits import SLOWER
from tests.privileged.commands import (
    ROOT,
    WAIT_S,
    Testbed,
    bounded,
    command,
    pid_of,
    running,
    start,
    wait_for,
)
from tests.processes import alive

STOP_S = 15.0
WORKERS, SUMMING_S = 2, 1.0  # of the job that sums; seconds from their start until they sum
WITHIN_S = 30.0 * SLOWER  # after which everything must work again, or must have ended with a reason
SUMS_S = STOP_S + 3.0  # for which a job sums while a process is stopped
PACED = str(ROOT / "tests/privileged/jobs/paced.py")
CONFIGURATION = "units: [{hosts: 2}, {hosts: 4}, {hosts: 2}]\noptical_ports: 2\n"
# makes the testbed start its keeper of cgroups
LIMITED = CONFIGURATION.replace("[{hosts: 2}", "[{hosts: [{}, {cpus: 1}]}")
CIRCUITS = (("u1o1-u2o1", "u1o2-u3o1"), ("u1o1-u2o1", "u2o2-u3o2"))
PASSING = (
    "server",
    "policy",
    "attended",
)  # processes that exist only while a job sums, a submission lasts, or a command of exec runs
SURVIVED = (
    "controller",
    "turner",
    "template",
    "worker",
    "keeper",
    *PASSING,
)  # processes whose death the testbed survives
MOMENTS = ("sums", "circuits", "starts", "idle", "down")
ATTENDED = "attends"  # exec's keeper attends a command


@dataclass(frozen=True, slots=True)
class Cell:
    """A process of a testbed, the act done to it, and when."""

    process: str
    act: str
    moment: str

    def __str__(self) -> str:
        return f"{self.process}-{self.act}-{self.moment}"


def cells(process: str, *acts: str) -> list[Cell]:
    """Return the cells of a row. A worker exists only while a job does."""
    moments = (*MOMENTS, ATTENDED) if process == "attended" else MOMENTS
    return [
        Cell(process, act, moment)
        for act in acts
        for moment in moments
        if process != "worker" or moment == "sums"
    ]


@dataclass(slots=True)
class Outcome:
    """The end of a cell: how long after the process continued, or was killed, and the message; `wrong` is the
    reason why that is not accepted, or "".
    """

    took_s: float
    words: str
    wrong: str = ""


class Asked:
    """A running command, whose output, in one pipe, is read by a thread."""

    def __init__(self, *argv: str) -> None:
        self._process = start(*argv, together=True)
        self._lines: list[str] = []
        self._ended_at = 0.0
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout
        with bounded(self._process):
            self._lines.extend(iter(self._process.stdout.readline, ""))
            self._process.wait(WAIT_S)
        self._ended_at = time.monotonic()

    def says(self, words: str) -> bool:
        """Return whether it has printed these words, or has ended."""
        return any(words in line for line in self._lines) or self.has_ended()

    def has_ended(self) -> bool:
        return not self._reading.is_alive()

    def end(self) -> tuple[int, str, float]:
        """Return its exit code, its output, and when it ended."""
        self._reading.join(2 * WAIT_S)
        return self._process.returncode, "".join(self._lines), self._ended_at


class Row:
    """A testbed, and the process to which acts are done."""

    def __init__(self, process: str, testbed: Testbed, folder: Path) -> None:
        self._process, self._testbed = process, testbed
        self._folder, self._submissions = folder / testbed.name, itertools.count()  # numbers of jobs
        self._first_s = 0.0  # the time of its first job, which loads torch
        self._circuits = itertools.cycle(CIRCUITS)
        self.outcomes: dict[Cell, Outcome] = {}

    def disturb(self, act: str) -> None:
        """Do an act while a job sums, another starts, and circuits change; then check that everything
        works again.
        """
        self._expect_all_works()
        asked = self._at_work()
        with self._disturbed(act) as went_on:
            if self._process == "policy":
                asked |= {"circuits": self._submit("u2:1,u3:1", 0.1), "starts": self._submit("u2:2", 0.1)}
            elif self._process != "worker":
                asked |= {"circuits": self._set_circuits(), "starts": self._run("u2:2", 0.1)}
        if self._process == "policy":  # the policy owns the circuits while its jobs run
            _, _, went_on_at = max((each.end() for each in asked.values()), key=lambda end: end[2])
            took_s, wrong = self._all_works(went_on_at + self._within_s)
            self._note(Cell(self._process, act, "idle"), took_s, wrong or "all works", wrong)
        elif self._is_over(act):
            words, wrong = self._last_words()
            self._note(Cell(self._process, act, "idle"), time.monotonic() - went_on(), words, wrong)
        elif self._process != "worker":
            took_s, wrong = self._all_works(went_on() + self._within_s)
            self._note(Cell(self._process, act, "idle"), took_s, wrong or "all works", wrong)
        for moment, each in asked.items():
            code, said, ended_at = each.end()
            wrong = _wrong_end(code, said)
            self._note(Cell(self._process, act, moment), ended_at - went_on(), said, wrong)

    def end(self, act: str) -> None:
        """Do an act, and ask the testbed to end."""
        asked = {}
        if self._process in PASSING:
            self._expect_all_works()
            asked = self._at_work()
        with self._disturbed(act) as went_on:
            asked["down"] = Asked("testbed.down", "--name", self._testbed.name)
        ends = [each.end() for each in asked.values()]
        _, said, ended_at = ends[-1]
        wrong = next((wrong for end in ends if (wrong := _wrong_end(*end[:2]))), "")
        if alive(self._testbed.pid):
            wrong = f"its main process is still there: {said}"
        self._note(Cell(self._process, act, "down"), ended_at - went_on(), said, wrong)

    # ------------------------------------------------------------------ acts

    @contextlib.contextmanager
    def _disturbed(self, act: str) -> Iterator[Callable[[], float]]:
        """Stop the process, run the body, and let the process continue; or kill it, and run the body. Yield a
        function that returns when it continued.
        """
        pid = number(self._process, self._testbed.pid)
        began = time.monotonic()
        went_on = [began]
        if act == "kill":
            os.kill(pid, signal.SIGKILL)
            yield lambda: went_on[0]
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            yield lambda: went_on[0]
            while time.monotonic() < began + STOP_S and alive(pid):
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            went_on[0] = time.monotonic()

    def _is_over(self, act: str) -> bool:
        """Return whether an act ended the testbed, as the death of most processes does."""
        if act == "kill" and self._process not in SURVIVED:
            wait_for(lambda: not alive(self._testbed.pid), "the testbed ends")
        return not alive(self._testbed.pid)

    @property
    def _within_s(self) -> float:
        """Return the time until everything must work again. A new template loads torch again."""
        return WITHIN_S + (self._first_s if self._process == "template" else 0.0)

    # ------------------------------------------------------------------ commands

    def _at_work(self) -> dict[str, Asked]:
        """Return the running commands, once a job sums and the process exists."""
        asked = {}
        if self._process == "attended":
            asked[ATTENDED] = Asked(
                "testbed.exec", "--name", self._testbed.name, "u3h1", "sleep", f"{SUMS_S:g}"
            )
        if self._process == "policy":
            asked["sums"] = self._submit("u1:2", SUMS_S)
        else:
            sync = "ps" if self._process == "server" else "inc"
            asked["sums"] = self._run("u1:2", SUMS_S, "--sync", sync)
        self._await_sums(asked["sums"])
        return asked

    def _run(self, place: str, seconds: float, *options: str) -> Asked:
        words = ("--name", self._testbed.name, "--place", place, "--preload", "--timeout", "100", *options)
        return Asked("testbed.run", *words, PACED, f"{seconds:g}", "5000", "0.05")

    def _submit(self, place: str, seconds: float) -> Asked:
        """Submit a job, for which the default policy starts a process."""
        job: dict[str, object] = {
            "name": "paced",
            "place": place,
            "script": PACED,
            "arguments": [seconds, 5000, 0.05],
        }
        job |= {"iterations": round(seconds / 0.05), "megabytes": 0.02}
        self._folder.mkdir(exist_ok=True)
        file = self._folder / f"{next(self._submissions)}.json"
        file.write_text(json.dumps({"slot_s": 0.5, "jobs": [job]}))
        return Asked("testbed.submit", "--name", self._testbed.name, "--preload", str(file))

    def _set_circuits(self) -> Asked:
        return Asked("testbed.circuits", "--name", self._testbed.name, "set", *next(self._circuits))

    def _expect_all_works(self) -> None:
        took_s, wrong = self._all_works(time.monotonic() + WAIT_S)
        self._first_s = self._first_s or took_s
        assert not wrong, wrong

    def _all_works(self, deadline: float) -> tuple[float, str]:
        """Return how long it takes until circuits change and a job runs over them, and a reason if they do
        not in time.
        """
        began = time.monotonic()
        wrong = "not all works again"
        while time.monotonic() < deadline:
            code, said, _ = self._set_circuits().end()
            if not code:
                code, said, ended_at = self._run("u2:1,u3:1", 0.1).end()
            if not code and ended_at < deadline:
                return ended_at - began, ""
            wrong = f"not all works again: {said}"
        return time.monotonic() - began, wrong

    def _await_sums(self, job: Asked) -> None:
        wait_for(lambda: job.says(" on u1h1 u1h2"), "its hosts are known")
        template = psutil.Process(number("template", self._testbed.pid))
        wait_for(lambda: len(template.children()) >= WORKERS or job.has_ended(), "its workers run")
        assert not job.has_ended(), job.end()
        time.sleep(SUMMING_S)

    # ------------------------------------------------------------------ what is noted

    def _last_words(self) -> tuple[str, str]:
        """Return the reason that `status` gives for the testbed's end, and what is wrong with it."""
        shown = command("testbed.status", "--name", self._testbed.name)
        said = shown.stdout + shown.stderr
        return said, "" if "it died" in said or "was killed" in said else f"no reason is said: {said}"

    def _note(self, cell: Cell, took_s: float, said: str, wrong: str) -> None:
        if took_s > self._within_s and not wrong:
            wrong = f"{took_s:.0f} s after it went on: {said}"
        self.outcomes[cell] = Outcome(took_s, _last_line(said), wrong)


def _wrong_end(code: int, said: str) -> str:
    """Return the reason why a command's end does not help a user, or ""."""
    reason = next((line for line in reversed(said.splitlines()) if line.startswith("testbed ")), "")
    if code == 0 or (code > 0 and ": " in reason and "nobody answers" not in reason):
        return "" if "Traceback" not in reason else said
    return f"ended with {code}, and no reason: {said}"


def _last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line and not line.startswith("testbed run: recorded")]
    return lines[-1] if lines else ""


def number(process: str, main: int) -> int:
    """Return the PID of a process of a testbed, from the PID of its main process."""
    match process:
        case "main":
            return main
        case "init":
            return psutil.Process(pid_of(main, "unshare")).children()[0].pid
        case "daemon":
            return pid_of(main, "testbed.daemon.process")
        case "turner":
            return psutil.Process(pid_of(main, "controller")).children()[0].pid
        case "template":
            daemon = psutil.Process(pid_of(main, "testbed.daemon.process"))
            return next(child.pid for child in daemon.children() if "workloads.template" in child.cmdline())
        case "worker":
            return psutil.Process(number("template", main)).children()[0].pid
        case "server":
            return pid_of(main, "workloads.parameter_server")
        case "policy":
            return pid_of(main, "testbed.queue.policy_host")
        case "attended":
            below = psutil.Process(main).children(recursive=True)
            return next(each.pid for each in below if keeper.__file__ in each.cmdline())
        case "keeper":
            return next(child.pid for child in psutil.Process(main).children() if child.name() != "unshare")
    return pid_of(main, process)


def is_there(process: str, main: int) -> bool:
    """Return whether a testbed has this process, or will have it again with its next job or command."""
    return process != "keeper" or alive(number(process, main))


def row(process: str, *acts: str, folder: Path) -> dict[Cell, Outcome]:
    """Return the outcomes of a row: each act in the middle of work, and then each while the testbed is asked
    to end, on as few testbeds as possible.
    """
    outcomes: dict[Cell, Outcome] = {}
    path = folder / f"{process}.yaml"
    path.write_text(LIMITED if process == "keeper" else CONFIGURATION)
    pending = [(Row.disturb, act) for act in acts]
    pending += [(Row.end, act) for act in acts if process != "worker"]
    while pending:
        with running(str(path)) as testbed:
            made = Row(process, testbed, folder)
            while pending and alive(testbed.pid) and is_there(process, testbed.pid):
                if process == "template":
                    made._expect_all_works()  # which starts a template
                do, act = pending.pop(0)
                do(made, act)
        outcomes |= made.outcomes
    return outcomes
