"""Gates: the launcher's side and the worker's, which is another process with descriptors of its own
numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

from testbed.jobs.board import JobBoard
from testbed.jobs.gates import Gates
from testbed.machine.ready import ready
from testbed.wire.settings import BoardSettings, SumSettings, WorkerSettings, written
from tests.limits import CALL_S
from tests.unit.made_settings import RING, endpoint, worker

ROOT = Path(__file__).resolve().parents[2]
NO_BOARD = BoardSettings(-1, 0, (), 0, {}, None)
WORKER = """
import json, os
from workloads import job_env
job_env.wait_at_gate()
job = job_env.JobEnv.from_environ()
again = job_env.JobEnv.from_environ()
job.board.add_summed(4 << 20)
job.board.leave()
ring = os.read(job.endpoint.ring_fd, 99).decode()
print(json.dumps([job.transport, job.ps, ring, job.endpoint.slots, again.transport]))
"""


def start(settings: WorkerSettings, script: str, fds: list[int]) -> subprocess.Popen[str]:
    environ = {**os.environ, "TESTBED_JOB": written(settings), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=environ,
        pass_fds=fds,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(gates: Gates) -> None:
    deadline = time.monotonic() + 20
    while not gates.all_there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_waits_and_is_told_with_descriptors(tmp_path: Path) -> None:
    gates = Gates(1)
    reader, writer = os.pipe()
    os.write(writer, b"through the ring")
    with JobBoard(1) as board:
        process = start(worker(board.settings(), tmp_path, gate=gates.fd(0)), WORKER, [gates.fd(0), board.fd])
        gates.are_inherited()
        assert not gates.all_there() or process.poll() is None
        wait_for(gates)
        assert process.poll() is None, "it waits"
        assert (board.summed_bytes(), board.left_ns()) == (0, 0)
        summed = endpoint(ring_fd=reader, wake_fd=reader, slots=64)
        gates.open(0, SumSettings("inc", "packets", summed, None, None), [reader])
        said, errors = process.communicate(timeout=CALL_S)
        assert process.returncode == 0, errors
        assert json.loads(said) == ["packets", None, "through the ring", 64, "packets"]
        assert board.summed_bytes() == 4 << 20
        assert 0 < board.left_ns() <= time.monotonic_ns()
    gates.close()


def test_a_worker_whose_testbed_ends_is_told(tmp_path: Path) -> None:
    gates = Gates(1)
    with JobBoard(1) as board:
        process = start(worker(board.settings(), tmp_path, gate=gates.fd(0)), WORKER, [gates.fd(0), board.fd])
        gates.are_inherited()
        wait_for(gates)
        gates.close()
        _, errors = process.communicate(timeout=CALL_S)
        assert process.returncode == 1
        assert "the testbed ended before it started this job" in errors


def test_the_gate_is_the_workers_own(tmp_path: Path) -> None:
    """A child of a worker has the variable, and not the descriptor, or another one of that number."""
    script = "import os; from workloads import job_env; job_env.wait_at_gate(); print('went on')"
    reader, writer = os.pipe()
    for gate in (999, reader):
        child = start(worker(NO_BOARD, tmp_path, gate=gate), script, [reader])
        said, errors = child.communicate(timeout=CALL_S)
        assert (child.returncode, said) == (0, "went on\n"), errors
    os.close(reader)
    os.close(writer)


def test_one_that_has_ended_is_not_told() -> None:
    gates = Gates(2)
    gates.are_inherited()
    assert not gates.all_there()
    gates.open(0, RING, [])
    gates.close()


def test_descriptors_of_any_number_are_waited_for() -> None:
    """select(2) takes none above 1023. With so many limited, the number is as high as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        ours, theirs = socket.socketpair()
        high = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, min(hard - 100, 2000))
        with ours, theirs:
            assert ready([high], 0.0) == set()
            assert ready([], 0.0, writing=[high]) == {high}
            theirs.send(b"x")
            assert ready([high, theirs.fileno()], 0.0) == {high}
        os.close(high)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
