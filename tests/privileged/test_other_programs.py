"""An XDP program that somebody attached in the place of the testbed's, or a device that somebody deleted: a
job that would meet it is refused in one line, one that runs ends, and what the line says to do helps.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.topology import addresses
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, Testbed, bounded, command, pid_of, running, start

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch"), pytest.mark.timeout(400)]
OTHER = ROOT / "tests" / "privileged" / "other_program.py"
SOON_S = 30.0  # of a command whose job would wait for ever
REFUSED = (
    "host u1h2: eth0 has the XDP program 'pass_all' ({}), and not the testbed's host_port: detach it "
    f"(sudo {ROOT}/.venv/bin/testbed exec --name {{}} u1h2 ip link set dev eth0 xdp off), and start the job "
    "again"
)
AGAIN = "host u1h2: eth0 had no XDP program any more; the testbed's is there again"


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as made:
        yield made


def inside(testbed: Testbed, host: str, *words: str) -> str:
    """Run a command at a host by `testbed exec`, as root."""
    done = command("testbed.exec", "--name", testbed.name, host, "--", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(testbed: Testbed, tmp_path: Path, place: str, *words: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "says.py"
    script.write_text(
        "import torch, torch.distributed as dist; dist.init_process_group('inc')\n"
        "dist.all_reduce(torch.ones(5003)); print('summed')\n"
    )
    options = ["--preload", "--place", place, "--timeout", "60", *words]
    return command("testbed.run", "--name", testbed.name, *options, str(script))


def assert_refused(
    testbed: Testbed, ended: subprocess.CompletedProcess[str], began: float, line: str
) -> None:
    assert time.monotonic() - began < SOON_S
    assert ended.returncode != 0
    assert [each for each in ended.stderr.splitlines() if line in each], ended.stderr
    assert "Traceback" not in ended.stderr
    assert "summed" not in ended.stdout
    status = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
    assert status["jobs"] == [], "nothing of it is left"


def number_at(testbed: Testbed, host: str) -> int:
    (device,) = json.loads(inside(testbed, host, "ip", "-j", "link", "show", "dev", "eth0"))
    return int(device["xdp"]["prog"]["id"])


def test_a_job_whose_host_has_another_program_is_refused_until_it_is_detached(
    testbed: Testbed, tmp_path: Path
) -> None:
    inside(testbed, "u1h2", sys.executable, str(OTHER), "eth0")
    line = REFUSED.format(number_at(testbed, "u1h2"), testbed.name)
    began = time.monotonic()
    assert_refused(testbed, run(testbed, tmp_path, "u1:2", "--restarts", "1"), began, line)
    jobs = tmp_path / "jobs.yaml"
    job = {"name": "a", "script": str(tmp_path / "says.py"), "iterations": 1, "megabytes": 0.02}
    jobs.write_text(json.dumps({"policy": "inc-fcfs", "jobs": [{**job, "place": "u1:2"}]}))
    began = time.monotonic()
    queued = command("testbed.submit", "--name", testbed.name, str(jobs))
    assert_refused(testbed, queued, began, line)
    inside(testbed, "u1h2", "ip", "link", "set", "dev", "eth0", "xdp", "off")
    ran = run(testbed, tmp_path, "u1:2")
    assert (ran.returncode, ran.stdout.count("summed")) == (0, 2), ran.stderr
    assert AGAIN in ran.stderr
    assert AGAIN not in run(testbed, tmp_path, "u1:2").stderr


@contextmanager
def summing(testbed: Testbed, folder: Path, place: str) -> Iterator[subprocess.Popen[str]]:
    """A job there that sums for ever, and has begun to."""
    script = folder / "sums.py"
    script.write_text(
        "import torch, torch.distributed as dist; dist.init_process_group('inc')\n"
        "dist.all_reduce(torch.ones(9)); print('began', flush=True)\n"
        "while True: dist.all_reduce(torch.ones(5003))\n"
    )
    options = ("--name", testbed.name, "--preload", "--place", place, "--timeout", "120")
    with bounded(start("testbed.run", *options, str(script), together=True)) as process:
        assert process.stdout is not None
        said: list[str] = []
        while not said or "began" not in said[-1]:
            said.append(process.stdout.readline())
            assert said[-1], said
        yield process


def assert_ends(process: subprocess.Popen[str], line: str) -> None:
    began = time.monotonic()
    assert process.stdout is not None
    rest = process.stdout.read()
    assert process.wait(CALL_S) == 1
    assert line in rest, rest
    assert time.monotonic() - began < SOON_S


def test_a_running_job_whose_host_gets_another_program_ends(testbed: Testbed, tmp_path: Path) -> None:
    """Its workers would wait for results that nobody hands them."""
    with summing(testbed, tmp_path, "u1:2") as process:
        inside(testbed, "u1h2", sys.executable, str(OTHER), "eth0")
        try:
            assert_ends(process, REFUSED.format(number_at(testbed, "u1h2"), testbed.name))
        finally:
            inside(testbed, "u1h2", "ip", "link", "set", "dev", "eth0", "xdp", "off")


def test_another_program_at_a_switch_s_port_is_named(testbed: Testbed, tmp_path: Path) -> None:
    daemon = pid_of(testbed.pid, "testbed.daemon.process")
    argv = ["nsenter", f"--target={daemon}", "--net", sys.executable, str(OTHER), "u1-h1"]
    subprocess.run(argv, check=True, timeout=CALL_S)
    began = time.monotonic()
    line = "switch port u1-h1 has the XDP program 'pass_all'"
    assert_refused(testbed, run(testbed, tmp_path, "u1:2"), began, line)


def test_a_running_job_whose_optical_device_is_deleted_ends(testbed: Testbed, tmp_path: Path) -> None:
    """The last test of this file: the testbed is not whole after it."""
    device = addresses.oxc_device(2, 1)
    with summing(testbed, tmp_path, "u2:1,u3:1") as process:
        daemon = pid_of(testbed.pid, "testbed.daemon.process")
        argv = ["nsenter", f"--target={daemon}", "--net", "ip", "link", "delete", "dev", device]
        subprocess.run(argv, check=True, timeout=CALL_S)
        assert_ends(process, "was deleted: end the testbed, and bring it up again")
