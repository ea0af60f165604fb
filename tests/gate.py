"""The gate: run every test, limit the time of all of them, and fail on a skip that tests/skips.py does not
list.

`python -m tests.gate` runs pytest in a session of its own, its tests in lanes (tests/lanes.py), and kills the
processes that it leaves behind. `Skips` and `UnderWay` are the plugins that pytest's option --gate loads
(tests/conftest.py). The gate's last line is pytest's own.
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
LANES = 4  # three with testbeds, which mostly wait, and one that uses the remaining CPU time
IN_ORDER_S = 60.0  # for pytest to end in order after its time is over, and print which tests were under way
KILL_S = 20.0
FOLDERS = ("tests/unit", "tests/privileged")
# variables to remove from the environment: pytest's could deselect tests, and Python's makes each of some
# thousand processes compile its modules again
LEFT_OUT = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONDONTWRITEBYTECODE")
PR_SET_CHILD_SUBREAPER = 36


def allowed_by(test: str, reason: str, rules: Sequence[Allowed] = ALLOWED) -> Allowed | None:
    """Return the rule that allows a skip of the test or file `test` with this reason, or None."""
    return next(
        (rule for rule in rules if re.fullmatch(rule.tests, test) and re.search(rule.reason, reason)), None
    )


class Skips:
    """A pytest plugin that turns a skip that no rule allows into a failure, and prints the others at the end,
    by rule. Skips that a lane allowed are judged again in the process that counts those of all lanes.
    """

    def __init__(self, rules: Sequence[Allowed] = ALLOWED) -> None:
        self._rules = rules
        self._skipped: Counter[tuple[Allowed, str]] = Counter()

    @pytest.hookimpl(wrapper=True)  # before any other plugin counts the report
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        self._judge(report)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        self._judge(report)
        return report

    def _judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Turn a report that no rule allows into a failure. An expected failure (`xfail`) counts as a skip,
        since no test passes there either.
        """
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
    )  # code after the yield prints after all of pytest's own output but its last line
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, None, None]:
        yield
        terminalreporter.section("skipped, and allowed by tests/skips.py", "-")
        for line in self.lines():
            terminalreporter.line(line)

    def lines(self) -> list[str]:
        """Return, for each rule, how many tests it let skip, its explanation, and their reasons."""
        lines = []
        for rule in self._rules:
            reasons = {reason: count for (of, reason), count in self._skipped.items() if of is rule}
            if reasons:
                lines.append(f"{sum(reasons.values())} for {rule.name}: {rule.why}")
                lines += [f"    {count}: {reason[:200]}" for reason, count in reasons.items()]
        return lines or ["none"]


class UnderWay:
    """A pytest plugin that prints which tests of all lanes were running when pytest is interrupted."""

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
    """Runs pytest as a child, ends it in time, and kills everything that it started."""

    def __init__(self, argv: Sequence[str], limit_s: float, in_order_s: float = IN_ORDER_S) -> None:
        self._argv, self._limit_s, self._in_order_s = list(argv), limit_s, in_order_s
        self._is_over = False

    def run(self) -> int:
        """Run pytest. Return its exit code, or 1 if it did not end in time or in order."""
        ctypes.CDLL(None).prctl(
            PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0
        )  # orphaned processes of the tests become this process's children
        # a session of its own: only this process receives a terminal's Ctrl-C, and passes it on
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
        """Kill (SIGKILL) the processes that the tests started and did not end: testbeds' main processes,
        whose end ends the rest.
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
    """Return the children of this process, over all of its threads that have not ended meanwhile."""
    children = []
    for task in tasks.iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += [int(pid) for pid in (task / "children").read_text().split()]
    return children


def say(line: str) -> None:
    """Print a line to standard error, apart from the tests' own lines."""
    print(f"gate: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    try:
        limit_s = number_of(LIMIT_VARIABLE, LIMIT_S, "a number of seconds")
        count = int(number_of(LANES_VARIABLE, LANES, "a whole number of lanes", is_whole=True))
    except ValueError as error:
        say(str(error))
        return 2
    # jobs of ordinary users must be able to enter it; another pytest's start would close pytest's own folder
    folder = Path(tempfile.mkdtemp(prefix="gate-"))
    folder.chmod(0o755)
    argv = [sys.executable, "-m", "pytest", "--gate", *lanes.options(count), f"--basetemp={folder}/tests"]
    argv += ["--durations=30", "--durations-min=10"]  # the slowest tests
    code = Run([*argv, *(arguments or FOLDERS)], limit_s).run()
    if code == 0:
        shutil.rmtree(folder)
    else:
        say(f"the tests' files are in {folder}")
    return code


def number_of(variable: str, default: float, accepted: str, is_whole: bool = False) -> float:
    """Return the positive number set in the environment. ValueError says which values are accepted."""
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
