"""The worker that the others wait for is named, within seconds, on real testbeds: one that leaves, sleeps,
stops, or never comes, with sums in the network, by a ring and at a parameter server.

The three kinds run beside each other. Times are from the deed, by the worker's own clock, to the line's
arrival at whoever called `testbed run`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.privileged.commands import Testbed, bounded, pids_in_testbed, running, start

JOBS = Path(__file__).resolve().parent / "jobs"
NAMED_WITHIN_S = 6.0
BUSY_S = 4.0  # more, on a machine of two cores that runs nine workers, and whatever else
PLACES = {"inc": "u1:3", "ring": "u2:3", "ps": "u3:2,u4:1"}

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as it:
        yield it


@dataclass
class Told:
    """The lines that a `testbed run` printed on both its streams, each with when it came."""

    sync: str
    lines: list[tuple[float, str]] = field(default_factory=list)
    code: int | None = None

    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def deed(self) -> tuple[float, int]:
        """Return when the absent worker did its deed, and its process."""
        match = re.search(r"deed: (\d+) (\d+)", self.text())
        assert match, self.text()
        return int(match[1]) / 1e9, int(match[2])

    def after_deed(self, pattern: str) -> list[float]:
        """Return how long after the deed each line came that the pattern is in."""
        return [when - self.deed()[0] for when, line in self.lines if re.search(pattern, line)]


Hear = Callable[[Told, str], None]


def run_all(testbed: Testbed, *words: str, hear: Hear = lambda job, line: None) -> dict[str, Told]:
    """Run a script by all kinds of sums at once; `hear` gets each line as it comes."""
    jobs = {sync: Told(sync) for sync in PLACES}
    threads = [threading.Thread(target=run, args=(testbed, job, words, hear)) for job in jobs.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs


def run(testbed: Testbed, job: Told, words: tuple[str, ...], hear: Hear) -> None:
    options = ("--sync", job.sync, "--place", PLACES[job.sync], "--preload")
    process = start("testbed.run", "--name", testbed.name, *options, *words, together=True)
    with process, bounded(process):
        assert process.stdout is not None
        for line in process.stdout:
            job.lines.append((time.monotonic(), line.rstrip()))
            hear(job, line)
    job.code = process.returncode


@pytest.mark.parametrize(
    ("deed", "when", "line"),
    [
        ("exits", 0, "ended with 0 before it joined the process group"),
        ("exits", 3, "ended with 0 while others waited for it in collective 3"),
        ("ends", 3, "ended with 0 while others waited for it in collective 3"),
        ("fails", 0, "exited with code 3"),
    ],
)
def test_who_leaves_is_named_and_the_job_ends(testbed: Testbed, deed: str, when: int, line: str) -> None:
    for job in run_all(testbed, str(JOBS / "absent.py"), deed, str(when)).values():
        assert job.code == 1, job.text()
        last = job.lines[-1][1]
        assert re.search(rf"failed: worker 1 on u\dh2 {line} \(log: ", last), job.text()
        assert job.after_deed(line)[0] < NAMED_WITHIN_S + BUSY_S, job.text()
        assert "frame #" not in job.text()


def pid_here(testbed: Testbed, number: int) -> int:
    """Return the number of a testbed's process in this namespace, from the one that it has in its own."""
    for pid in pids_in_testbed(testbed.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names = re.search(r"NSpid:(.*)", Path(f"/proc/{pid}/status").read_text())
            if names is not None and names[1].split()[-1] == str(number):
                return pid
    raise AssertionError(f"no process {number} in the testbed")


@pytest.mark.parametrize(
    ("deed", "when", "line"),
    [
        ("stops", 0, r"\(stopped for \d s\) to join the process group"),
        ("sleeps", 3, r"\(sleeping for \d s\) in collective 3"),
    ],
)
def test_who_sleeps_is_named_and_the_job_goes_on_when_it_wakes(
    testbed: Testbed, deed: str, when: int, line: str
) -> None:
    def wake(job: Told, heard: str) -> None:
        if deed == "stops" and "waiting for" in heard:
            os.kill(pid_here(testbed, job.deed()[1]), signal.SIGCONT)

    for job in run_all(testbed, str(JOBS / "absent.py"), deed, str(when), hear=wake).values():
        assert job.code == 0, job.text()
        assert job.text().count("done\n") == 3
        (named_s,) = job.after_deed(rf"waiting for worker 1 on u\dh2 {line}")
        assert named_s < NAMED_WITHIN_S + BUSY_S, job.text()
        assert re.search(r"the others waited \d+ s for worker 1", job.text())


@pytest.mark.parametrize("backend", ["inc", "gloo"])
def test_a_group_that_does_not_fit_the_job_is_one_line(testbed: Testbed, backend: str) -> None:
    job = Told("inc")
    run(testbed, job, (str(JOBS / "smaller.py"), backend), lambda job, line: None)
    assert job.code == 1, job.text()
    assert re.search(
        r"failed: worker [01] on u1h[12]: world_size 2 does not fit this job's 3 workers", job.lines[-1][1]
    )
    assert "WorldSizeError: world_size 2 does not fit this job's 3 workers: leave it to" in job.text()
