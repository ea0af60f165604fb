"""The gate: every test, with a limit on the time of all of them, and no skip that is not on the list of
tests/skips.py.

`python -m tests.gate` runs pytest in a session of its own, its tests in lanes (tests/lanes.py), and ends
what it leaves behind; `Skips` and `UnderWay` are the plugins that pytest's option --gate loads
(tests/conftest.py). The last line of the gate is pytest's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests import lanes
from tests.processes import alive
from tests.skips import ALLOWED, Allowed

LIMIT_VARIABLE, LANES_VARIABLE = "TESTBED_GATE_LIMIT_S", "TESTBED_GATE_LANES"
LIMIT_S = 3600.0  # a machine whose hypervisor took a fifth of its time had done 98 % in 3000 s
LANES = 4  # three of testbeds, which wait most of their time, and one that fills what they leave
IN_ORDER_S = 60.0  # for pytest to end in order when its time is over, which prints what was under way
KILL_S = 20.0
FOLDERS = ("tests/unit", "tests/privileged")
# of the environment: by pytest's own somebody's pytest runs less than all, and by Python's each of some
# thousand processes compiles its modules again
LEFT_OUT = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONDONTWRITEBYTECODE")
PR_SET_CHILD_SUBREAPER = 36


def allowed_by(test: str, reason: str, rules: Sequence[Allowed] = ALLOWED) -> Allowed | None:
    """The rule that allows a skip: of the test or file `test`, which says `reason`."""
    return next(
        (rule for rule in rules if re.fullmatch(rule.tests, test) and re.search(rule.reason, reason)), None
    )


class Skips:
    """A pytest plugin: makes a skip that no rule allows a failure, and prints the others at the end, by
    rule. What a lane lets pass is judged again where those of all lanes are counted.
    """

    def __init__(self, rules: Sequence[Allowed] = ALLOWED) -> None:
        self._rules = rules
        self._skipped: Counter[tuple[Allowed, str]] = Counter()

    @pytest.hookimpl(wrapper=True)  # before anybody counts it
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        self._judge(report)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        self._judge(report)
        return report

    def _judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """An expected failure (`xfail`) counts as a skip: it, too, is a test that nobody passes."""
        if not report.skipped:
            return
        reason = str(getattr(report, "wasxfail", "") or _reason(report.longrepr))
        rule = allowed_by(report.nodeid, reason, self._rules)
        before = 0 if rule is None else sum(count for (of, _), count in self._skipped.items() if of is rule)
        if rule is not None and (rule.most is None or before < rule.most):
            self._skipped[rule, reason] += 1
            return
        why = (
            "tests/skips.py allows none such"
            if rule is None
            else f"tests/skips.py allows {rule.most} for {rule.name}"
        )
        report.outcome = "failed"
        report.longrepr = f"skipped, which fails the gate, since {why}: {reason}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail

    @pytest.hookimpl(
        wrapper=True, tryfirst=True
    )  # what follows the yield is printed after all of pytest's own but its last line
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, None, None]:
        yield
        terminalreporter.section("skipped, and allowed by tests/skips.py", "-")
        for line in self.lines():
            terminalreporter.line(line)

    def lines(self) -> list[str]:
        """Return, for each rule, the number of tests that it let skip, its why, and their reasons."""
        lines = []
        for rule in self._rules:
            reasons = {reason: count for (of, reason), count in self._skipped.items() if of is rule}
            if reasons:
                lines.append(f"{sum(reasons.values())} for {rule.name}: {rule.why}")
                lines += [f"    {count}: {reason[:200]}" for reason, count in reasons.items()]
        return lines or ["none"]


class UnderWay:
    """A pytest plugin: says which tests of all lanes had begun when pytest is interrupted."""

    def __init__(self) -> None:
        self._tests: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tests.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._tests.discard(nodeid)

    def pytest_keyboard_interrupt(self) -> None:
        say(f"under way: {', '.join(sorted(self._tests)) or 'no test'}")


def _reason(longrepr: Any) -> str:
    """Return the reason of a skip: the last of (file, line, text)."""
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(text).removeprefix("Skipped: ")


# ------------------------------------------------------------------ around pytest


class Run:
    """pytest, from outside: its end in time, and the end of all that it started."""

    def __init__(self, argv: Sequence[str], limit_s: float, in_order_s: float = IN_ORDER_S) -> None:
        self._argv, self._limit_s, self._in_order_s = list(argv), limit_s, in_order_s
        self._is_over = False

    def run(self) -> int:
        """pytest's exit code, or 1 when it did not end in time or in order."""
        ctypes.CDLL(None).prctl(
            PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0
        )  # orphans of the tests become this process's children
        # a session of its own: a terminal's Ctrl-C is for this process, which passes it on
        env = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        self._pytest = subprocess.Popen(self._argv, env=env, start_new_session=True)
        before = {number: signal.signal(number, self._pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        watch = threading.Timer(self._limit_s, self._end)
        watch.start()
        try:
            code = self._pytest.wait()
        finally:
            watch.cancel()
            watch.join()
            for number, handler in before.items():
                signal.signal(number, handler)
            self._kill_rest()
        if code < 0:
            say(f"pytest was ended by {signal.Signals(-code).name}")
        return 1 if code < 0 or (code == 0 and self._is_over) else code

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        say(f"asked to end by {signal.Signals(number).name}")
        self._pytest.send_signal(signal.SIGINT)

    def _end(self) -> None:
        self._is_over = True
        say(
            f"the tests are not over after {self._limit_s:g} s ({LIMIT_VARIABLE}), which fails the gate; "
            f"ending them"
        )
        self._pytest.send_signal(signal.SIGINT)
        try:
            self._pytest.wait(self._in_order_s)
        except subprocess.TimeoutExpired:
            say(f"pytest did not end in {self._in_order_s:g} s either, so that it is killed")
            self._pytest.kill()

    def _kill_rest(self) -> None:
        """Ends by SIGKILL whatever the tests started and did not end: testbeds' main processes, with which
        goes the rest.
        """
        deadline = time.monotonic() + KILL_S
        while left := [pid for pid in _children() if pid != self._pytest.pid and alive(pid)]:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if time.monotonic() > deadline:
                say(f"processes {left} do not end")
                return


def _children(tasks: Path = Path("/proc/self/task")) -> list[int]:
    """Return the children of this process, by all of its threads that have not ended meanwhile."""
    children = []
    for task in tasks.iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += [int(pid) for pid in (task / "children").read_text().split()]
    return children


def say(line: str) -> None:
    """Print a line to standard error, where the tests' own lines are not."""
    print(f"gate: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    try:
        limit_s = number_of(LIMIT_VARIABLE, LIMIT_S, "a number of seconds")
        count = int(number_of(LANES_VARIABLE, LANES, "a whole number of lanes", is_whole=True))
    except ValueError as error:
        say(str(error))
        return 2
    # jobs of ordinary users pass through it; another pytest's start would shut one of pytest's own to them
    folder = Path(tempfile.mkdtemp(prefix="gate-"))
    folder.chmod(0o755)
    argv = [sys.executable, "-m", "pytest", "--gate", *lanes.options(count), f"--basetemp={folder}/tests"]
    argv += ["--durations=30", "--durations-min=10"]  # where the time went
    code = Run([*argv, *(arguments or FOLDERS)], limit_s).run()
    if code == 0:
        shutil.rmtree(folder)
    else:
        say(f"the tests' files are in {folder}")
    return code


def number_of(variable: str, default: float, accepted: str, is_whole: bool = False) -> float:
    """Return the positive number that the environment sets. ValueError says what is accepted."""
    setting = os.environ.get(variable) or str(default)
    try:
        number = float(setting)
    except ValueError:
        number = 0.0
    if not number > 0 or (is_whole and not number.is_integer()):
        raise ValueError(f"{variable}={setting}: {accepted} is accepted")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
