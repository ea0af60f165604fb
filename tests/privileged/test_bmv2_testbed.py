"""Whole testbeds with BMv2 switches: jobs on them and across kinds of ToR, a switch that is killed, what is
said before a start.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.client.runtime import Runtime
from testbed.dataplanes.bmv2.process import BINARY, thrift_port
from tests.privileged.commands import ROOT, Testbed, command, pids_in_testbed, running, start, wait_for

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch"), pytest.mark.usefixtures("nothing_left")]

JOBS = ROOT / "tests" / "privileged" / "jobs"
RACK = "{units: [{hosts: 2, engine: bmv2}], host_rate_mbps: 200, scale: 1}"
MIXED = """
units: [{hosts: 2}, {hosts: 2, engine: bmv2}, {hosts: 2, engine: bmv2}]
ocs: {circuits: [[u1o1, u2o1], [u2o2, u3o1]]}
bmv2: {programs: []}
"""
RATES = {"shaped": "host_rate_mbps: 200\nscale: 1\n", "unshaped": "host_rate_mbps: unshaped\nscale: 1\n"}
FIRST_SUM_S = 180.0
END_S = 180.0
KILLED = "u1's simple_switch ended (signal 9)"


def configured(folder: Path, text: str) -> str:
    path = folder / "bmv2.yaml"
    path.write_text(text)
    return str(path)


def switch_of(testbed: Testbed, unit: int) -> psutil.Process:
    """The process of a unit's switch."""
    for pid in pids_in_testbed(testbed.pid):
        with contextlib.suppress(psutil.NoSuchProcess):  # another one, that has just ended
            process = psutil.Process(pid)
            if process.name() == BINARY and str(thrift_port(unit)) in process.cmdline():
                return process
    raise AssertionError(f"no switch of unit {unit}")


def status(testbed: Testbed) -> dict[str, Any]:
    return dict(json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout))


def kill_under_job(testbed: Testbed, unit: int, over: Path, *argv: str) -> tuple[int, str, str]:
    """Exit code and output of a job whose unit's switch is killed after its first sum, and that sums until
    there is a file `over`.
    """
    over.unlink(missing_ok=True)
    job = start("testbed.run", "--name", testbed.name, *argv, str(JOBS / "long.py"), str(over))
    assert job.stdout
    heard: list[str] = []
    deadline = threading.Timer(FIRST_SUM_S, job.kill)  # and with it the line that is waited for
    deadline.start()
    try:
        while "first sum" not in (line := job.stdout.readline()):
            assert line, f"no sum in {FIRST_SUM_S:g} s: {heard}, {job.stderr.read() if job.stderr else ''}"
            heard.append(line)
    finally:
        deadline.cancel()
    switch = switch_of(testbed, unit)
    switch.send_signal(signal.SIGKILL)
    switch.wait(END_S)  # no sum crosses it any more: the job's last one will need the switch that comes
    over.touch()
    out, error = job.communicate(timeout=END_S)
    return job.returncode, "".join(heard) + out, error


@pytest.mark.needs("bmv2")
def test_a_switch_that_is_killed_fails_its_job_and_a_restart_sums_to_the_end(tmp_path: Path) -> None:
    with running(configured(tmp_path, RACK)) as testbed:
        out, over = tmp_path / "r.json", tmp_path / "over"
        words = ["--place", "u1:2", "--json", str(out)]
        code, _, error = kill_under_job(testbed, 1, over, *words)
        assert code == 1, error
        assert json.loads(out.read_text())["failure"] == f"{KILLED}, and with it what it had summed"
        code, said, error = kill_under_job(testbed, 1, over, "--restarts", "1", *words)
        assert code == 0, error
        assert said.count("right: ") == 2
        result = json.loads(out.read_text())
        assert [attempt["failure"] is None for attempt in result["attempts"]] == [False, True]
        assert result["notes"] == [f"{KILLED}, and with it what it had summed: restart 1 of at most 1"]
        assert [unit["restarts"] for unit in status(testbed)["units"]] == [2]
        log, said = Runtime.of(testbed.name).log / "up.log", f"{KILLED} and was started again (restart 2)"
        wait_for(lambda: said in log.read_text(), "the log tells of the second start", END_S)


@pytest.mark.needs("bmv2")
@pytest.mark.parametrize("rates", RATES)
def test_a_job_across_both_kinds_of_switch_is_exact_and_outlives_one_that_it_only_passes(
    tmp_path: Path, rates: str
) -> None:
    with running(configured(tmp_path, MIXED + RATES[rates])) as testbed:
        out, over = tmp_path / "r.json", tmp_path / "over"
        code, said, error = kill_under_job(testbed, 2, over, "--place", "u1:1,u3:1", "--json", str(out))
        assert code == 0, error
        assert said.count("right: ") == 2
        result = json.loads(out.read_text())
        assert result["sync"] == "inc"
        assert result["ps_host"].startswith("u2"), "so that its results begin at the switch that was killed"
        assert len(result["attempts"]) == 1
        assert [unit["restarts"] for unit in status(testbed)["units"]] == [0, 1, 0]


@pytest.mark.needs("bmv2")
def test_a_switch_that_ends_without_a_job_routes_again(tmp_path: Path) -> None:
    with running(configured(tmp_path, RACK)) as testbed:
        switch_of(testbed, 1).send_signal(signal.SIGKILL)
        wait_for(lambda: status(testbed)["units"][0]["restarts"] == 1, "the switch is started again", END_S)
        wait_for(lambda: bool(status(testbed)["controller"]["ready"]), "its routes are set", END_S)
        done = command("testbed.run", "--name", testbed.name, "--place", "u1:2", str(JOBS / "many.py"), "11")
        assert done.returncode == 0, done.stderr


def test_without_simple_switch_nothing_is_started(tmp_path: Path) -> None:
    """The PATH has the other programs, and lacks simple_switch."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if program.name != BINARY and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    assert shutil.which(BINARY, path=str(folder)) is None
    up = command(
        "testbed.up", "--config", configured(tmp_path, RACK), "--name", "no-bmv2", env={"PATH": str(folder)}
    )
    assert up.returncode == 3
    assert up.stderr.startswith(f"testbed up: {BINARY} (BMv2) is not installed")
    assert up.stderr.count("\n") == 1
    assert not Runtime.of("no-bmv2").folder.exists()


@pytest.mark.needs("bmv2")
def test_a_program_that_does_not_compile_is_told_before_anything_is_started(tmp_path: Path) -> None:
    p4c = tmp_path / "p4c-bm2-ss"
    p4c.write_text("#!/bin/sh\necho 'sum.p4(3): error: no such header' >&2\nexit 1\n")
    p4c.chmod(0o755)
    config = configured(tmp_path, "{units: [{hosts: 2, engine: bmv2}], mtu: 1293}")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    up = command("testbed.up", "--config", config, "--name", "no-program", env=env)
    assert up.returncode == 1
    compiling, error = up.stderr.splitlines()
    assert compiling.startswith("bmv2: compiling wide-sum-blocks-owned-")
    assert error == "testbed up: compile p4/: sum.p4(3): error: no such header"
    assert not Runtime.of("no-program").folder.exists()
