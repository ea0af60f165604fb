"""A device of a running testbed that somebody deletes by hand: `status` says so, jobs elsewhere run, and one
there is refused.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import Testbed, command, pid_of, running

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch"), pytest.mark.timeout(300)]
SECONDS = 60.0  # two commands; it was 200 s for the first
SAID = "link u1h3: its device u1-h3 was deleted"


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running("rack") as made:
        daemon = pid_of(made.pid, "testbed.daemon.process")
        argv = ["nsenter", f"--target={daemon}", "--net", "ip", "link", "delete", "u1-h3"]
        subprocess.run(argv, check=True, timeout=CALL_S)
        yield made


def run(testbed: Testbed, tmp_path: Path, place: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "says.py"
    script.write_text("import torch.distributed as dist; dist.init_process_group('inc'); print('met')\n")
    return command("testbed.run", "--name", testbed.name, "--place", place, "--timeout", "60", str(script))


def test_status_names_it(testbed: Testbed) -> None:
    shown = command("testbed.status", "--name", testbed.name)
    assert shown.returncode == 0, shown.stderr
    assert f"attention   {SAID}" in shown.stdout
    said = command("testbed.status", "--name", testbed.name, "--json")
    assert json.loads(said.stdout)["gone_links"] == {"u1h3": "u1-h3"}


def test_jobs_elsewhere_run_and_the_one_there_is_refused(testbed: Testbed, tmp_path: Path) -> None:
    elsewhere = run(testbed, tmp_path, "u1:2")
    assert (elsewhere.returncode, elsewhere.stdout.count("met")) == (0, 2), elsewhere.stderr
    refused = run(testbed, tmp_path, "u1:4")
    assert refused.returncode != 0
    assert SAID in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_stopped_controller_is_named_in_seconds(testbed: Testbed) -> None:
    controller = pid_of(testbed.pid, "controller")
    os.kill(controller, signal.SIGSTOP)
    try:
        began = time.monotonic()
        asked = command("testbed.circuits", "--name", testbed.name)
        assert (asked.returncode, len(asked.stderr.splitlines())) == (1, 1)
        assert "the controller has not answered for 10 s: it is stopped" in asked.stderr
        shown = command("testbed.status", "--name", testbed.name)
        assert "controller  away" in shown.stdout
        assert time.monotonic() - began < SECONDS
    finally:
        os.kill(controller, signal.SIGCONT)
