"""Hangs of all kinds on a real testbed: workers that do not ask for the same end by an error that says what
each asked for; others are told in the words of the script, by `testbed run` and `testbed status`, and leave
the stacks of all workers in the record.

The kinds run beside each other, two workers each. Times are from the script's clock to the line's arrival.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.records import Record
from tests.privileged.commands import Testbed, bounded, command, open_folder, running, start

SCRIPT = Path(__file__).resolve().parent / "jobs" / "hangs.py"
ERROR_WITHIN_S, LINE_WITHIN_S, GROUP_WITHIN_S = 5.0, 6.0, 17.0
BUSY_S = 5.0  # more, on a machine of two cores that runs twelve workers, and whatever else
WAITS_S = 40.0  # a job that hangs, until its time limit
PLACES = ("u1:2", "u2:2", "u3:2", "u4:2", "u1:2", "u2:2")
HERE = r"hangs\.py:\d+"

# what both workers asked for, in their place of the order
ERRORS = {
    "kind": rf"worker 0 asks for all_reduce of 100000 float32 \(collective 2, {HERE}\), "
    rf"worker 1 for broadcast of 100000 float32 from worker 0 \(collective 2, {HERE}\)",
    "length": rf"worker 0 asks for all_reduce of 100000 float32 \(collective 2, {HERE}\), "
    rf"worker 1 for all_reduce of 100001 float32 \(collective 2, {HERE}\)",
    "type": r"all_reduce of 100000 float32 .*all_reduce of 100000 float64 ",
    "operation": r"all_reduce of 100000 float32 .*all_reduce \(MAX\) of 100000 float32 ",
    "root": r"broadcast of 100000 float32 from worker 0 .*broadcast of 100000 float32 from worker 1 ",
    "evaluates": rf"worker 0 asks for broadcast of \d+ float32 from worker 0 \(collective \d+, {HERE}\), "
    rf"worker 1 for barrier \(collective \d+, {HERE}\)",
}
# the line, and within how many seconds of the script's last word
LINES = {
    "group": (
        rf"worker 0 waits in all_reduce of 100000 float32 \(collective \d+, group 1, {HERE}\), "
        rf"worker 1 in all_reduce of 100000 float32 \(collective \d+, group 2, {HERE}\): "
        r"they wait in different groups",
        LINE_WITHIN_S,
    ),
    "late": (
        r"waiting for worker 1 on u\dh\d \(sleeping for \d+ s\) in collective 2: "
        rf"worker 0 waits in all_reduce of 100000 float32 \(collective 2, {HERE}\), "
        rf"worker 1 sleeps since collective 1 \({HERE}\)",
        LINE_WITHIN_S,
    ),
    "receives": (rf"workers 0, 1 wait in recv \({HERE}\)", LINE_WITHIN_S),
    "absent": (
        r"waiting for worker 1 on u\dh\d \(sleeping for \d+ s\) to join the process group: "
        r"worker 0 waits for the process group at [\d.]+:\d+, "
        rf"worker 1 has not joined the process group \({HERE}\)",
        LINE_WITHIN_S,
    ),
    "address": (
        r"nobody has joined the process group after \d+ s: workers 0, 1 wait for it at localhost:\d+, since "
        r"the script set MASTER_ADDR to localhost \(the job's is 10\.[\d.]+\)",
        GROUP_WITHIN_S,
    ),
    "rank": (
        r"nobody has joined the process group after \d+ s: worker 0 waits for it at [\d.]+:\d+, worker 1 "
        r"for it at [\d.]+:\d+, since the script took rank 0 \(its own is another\)",
        GROUP_WITHIN_S,
    ),
}

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as it:
        yield it


@dataclass
class Hang:
    """A job that hangs: the lines that `testbed run` printed, each with when it came, and its record."""

    kind: str
    records: Path
    lines: list[tuple[float, str]] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)  # by `testbed status`
    code: int | None = None

    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def after_its_last_word_s(self, pattern: str) -> float:
        """Return how long after the workers began what hangs the first line came that the pattern is in."""
        began = max(int(ns) / 1e9 for ns in re.findall(r"begins: (\d+)", self.text()))
        return next(when for when, line in self.lines if re.search(pattern, line)) - began

    def number(self) -> int:
        match = re.search(r"testbed run: job (\d+) on ", self.text())
        assert match, self.text()
        return int(match[1])

    def record(self) -> Record:
        (folder,) = self.records.iterdir()
        return Record.read(folder)


def run(testbed: Testbed, hang: Hang, place: str, *options: str) -> None:
    words = ("--name", testbed.name, "--place", place, "--preload", "--records", str(hang.records))
    process = start("testbed.run", *words, *options, str(SCRIPT), hang.kind, together=True)
    with process, bounded(process):
        assert process.stdout is not None
        for line in process.stdout:
            hang.lines.append((time.monotonic(), line.rstrip()))
    hang.code = process.returncode


def waiting(testbed: Testbed) -> dict[int, str]:
    """Return what `testbed status` says that jobs wait for, by their numbers."""
    shown: dict[str, Any] = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
    return {job["id"]: job["waiting"] for job in shown["jobs"] if job["waiting"]}


def all_of(testbed: Testbed, kinds: Iterable[str], folder: Path, *options: str) -> dict[str, Hang]:
    """Run a job of each kind at once; look at the status until they have ended."""
    hangs = {kind: Hang(kind, folder / kind) for kind in kinds}
    said = list[tuple[int, str]]()
    with ThreadPoolExecutor(len(PLACES)) as pool:
        jobs = [
            pool.submit(run, testbed, hang, place, *options)
            for hang, place in zip(hangs.values(), PLACES, strict=True)
        ]
        while not all(job.done() for job in jobs):
            said += waiting(testbed).items()
            time.sleep(1)
    for job in jobs:
        job.result()
    for hang in hangs.values():
        hang.waited = [line for number, line in said if number == hang.number()]
    return hangs


def stacks_of(hang: Hang) -> list[str]:
    """Return each worker's stack in the record."""
    files = sorted(hang.record().folder.glob("runs/1/logs/stacks-*.log"))
    assert [file.name for file in files] == ["stacks-0.log", "stacks-1.log"], hang.text()
    return [file.read_text() for file in files]


def test_workers_that_do_not_ask_for_the_same_end_by_what_each_asked_for(testbed: Testbed) -> None:
    with open_folder() as folder:
        for kind, hang in all_of(testbed, ERRORS, folder).items():
            assert hang.code == 1, hang.text()
            for rank in range(2):
                pattern = (
                    rf"\[rank{rank}\]: RuntimeError: DisagreementError: .*{ERRORS[kind]}.*do not ask for"
                )
                took_s = hang.after_its_last_word_s(pattern)
                assert took_s < ERROR_WITHIN_S + BUSY_S, hang.text()
            assert "no error" not in hang.text(), "its values are wrong"
            for stack in stacks_of(hang):
                assert "DisagreementError" in stack or "hangs.py" in stack, stack


def test_what_workers_wait_for_is_told_while_they_do(testbed: Testbed) -> None:
    with open_folder() as folder:
        for kind, hang in all_of(testbed, LINES, folder, "--timeout", str(WAITS_S)).items():
            line, within_s = LINES[kind]
            assert hang.code == 1, hang.text()
            took_s = hang.after_its_last_word_s(line)
            assert took_s < within_s + BUSY_S, hang.text()
            assert any(re.fullmatch(line, each) for each in hang.waited), (set(hang.waited), hang.text())
            assert all("hangs.py" in stack for stack in stacks_of(hang))
            shown = command("testbed.runs", "show", "--records", str(hang.records), "last").stdout
            assert "stacks of 2 workers as it failed: runs/1/logs/stacks-0.log ..." in shown
