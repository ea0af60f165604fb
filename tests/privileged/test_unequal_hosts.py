"""Hosts that differ: links with rates of their own, and limits on what their processes use of the cores,
which end with the testbed whatever that dies of.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cgroups import lifetime
from testbed.cgroups.hierarchy import find, tops
from testbed.client.runtime import Runtime
from tests.limits import CALL_S
from tests.privileged.commands import (
    ROOT,
    command,
    environment,
    fresh_name,
    open_folder,
    pids_in_testbed,
    running,
    wait_for,
)
from tests.processes import alive

pytestmark = [pytest.mark.needs("xdp", "ovs", "cgroups"), pytest.mark.usefixtures("nothing_left")]

CONFIG = "units: [{hosts: [{rate_mbps: 30000, cpus: 0.5}, {rate_mbps: 20000}, {cpus: 0.25}]}]\n"
SHARES = ROOT / "tests" / "privileged" / "jobs" / "shares.py"
PERIOD_S = 0.1  # at each end of a second, a share more may be used
# what the interpreter used before that second is none of its share
BUSY = "import time; began, used = time.monotonic(), time.process_time()\n"
BUSY += "while time.monotonic() < began + 1: pass\n"
BUSY += "print((time.process_time() - used) / (time.monotonic() - began))\n"
BUSY += "print(open('/proc/self/cgroup').read())"


@pytest.fixture
def config() -> Iterator[str]:
    with open_folder() as folder:
        (folder / "unequal.yaml").write_text(CONFIG)
        yield str(folder / "unequal.yaml")


def folders(name: str) -> list[Path]:
    """Return the cgroups of a testbed that its main process makes: of limits, and of jobs."""
    return sorted(folder for top in tops() for folder in top.glob(f"**/optinc-{name}-*"))


def is_held_to(cgroups: str, host: str) -> bool:
    """Return whether one of a process's cgroups is that of a host, or below it."""
    return any(f"/{host}/" in f"{line}/" and "/optinc-" in line for line in cgroups.splitlines())


def check_shares(shares: dict[str, tuple[float, str]]) -> None:
    """Check, by host, the share of a core that a process had, and its cgroups."""
    for host, cpus in (("u1h1", 0.5), ("u1h3", 0.25)):
        share, cgroups = shares[host]
        assert is_held_to(cgroups, host), cgroups
        assert share <= cpus * (1 + 2 * PERIOD_S), f"{host}: {share}"
    free = shares["u1h2"][1]
    assert not any(is_held_to(free, host) for host in ("u1h1", "u1h2", "u1h3")), "the one without a limit"
    assert not re.search(r"^[0-9]+:[^:]*\bcpu\b[^:]*:/optinc-", free, re.MULTILINE), "nor in any of cpu's"


def test_hosts_have_their_rates_and_their_processes_their_cores(config: str, tmp_path: Path) -> None:
    with running(config) as testbed:
        answer = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
        assert {link["name"]: link["rate_mbps"] for link in answer["links"]} == {
            "u1h1": 150,
            "u1h2": 100,
            "u1h3": 200,
        }
        assert [(host["rate_mbps"], host["cpus"]) for host in answer["hosts"]] == [
            (30_000, 0.5),
            (20_000, None),
            (40_000, 0.25),
        ]
        page = command("testbed.status", "--name", testbed.name).stdout
        assert "        u1h3: 40 Gb/s, 0.25 cores\n" in page
        said = {}
        for host in ("u1h1", "u1h2", "u1h3"):
            done = command("testbed.exec", "--name", testbed.name, host, "--", sys.executable, "-c", BUSY)
            assert done.returncode == 0, done.stderr
            share, _, cgroups = done.stdout.partition("\n")
            said[host] = float(share), cgroups
        check_shares(said)
        words = ["--name", testbed.name, "--place", "u1:3", "--preload", str(SHARES), str(tmp_path)]
        ran = command("testbed.run", *words)
        assert ran.returncode == 0, ran.stderr
        reports = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
        check_shares(
            {f"u1h{rank}": (report["share"], report["cgroups"]) for rank, report in enumerate(reports, 1)}
        )


def test_cgroups_go_with_the_testbed_whatever_dies(config: str) -> None:
    with running(config) as testbed:
        made = folders(testbed.name)
        assert len(made) == 2
        assert not lifetime.dead(testbed.name)
        os.kill(testbed.pid, signal.SIGKILL)
        wait_for(lambda: not folders(testbed.name), "the keeper removes what the main process made")
        command("testbed.down", "--name", testbed.name)  # which sweeps its folder
    with running(config) as testbed:
        made = folders(testbed.name)
        assert len(made) == 2
        (keeper,) = [pid for pid in pids_in_testbed(testbed.pid) if "keeper.py" in _words(pid)]
        os.kill(keeper, signal.SIGKILL)
        wait_for(lambda: lifetime.dead(testbed.name) == made, "nobody keeps them")
        inside = pids_in_testbed(testbed.pid)
        os.kill(testbed.pid, signal.SIGKILL)
        wait_for(lambda: not any(map(alive, inside)), "all of it is dead")
        assert folders(testbed.name) == made
        assert command("testbed.down", "--name", testbed.name).returncode == 0, "it had died"
        assert not folders(testbed.name)
    with running(config) as testbed:
        made = folders(testbed.name)
        assert len(made) == 2
        (keeper,) = [pid for pid in pids_in_testbed(testbed.pid) if "keeper.py" in _words(pid)]
        os.kill(keeper, signal.SIGKILL)
        assert command("testbed.down", "--name", testbed.name).returncode == 0
        assert not folders(testbed.name), "the main process does without the keeper"


def _words(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@pytest.mark.parametrize(
    ("before", "says"),
    [
        # again until none is left: a machine may have mounted them twice
        (
            "while umount -l /sys/fs/cgroup 2>/dev/null; do :; done",
            "no cgroups are mounted; cpus of hosts needs the cpu controller",
        ),
        ("mount -o remount,bind,ro {top}", "{top}/optinc-{name}-"),
    ],
)
def test_where_cgroups_cannot_be_written_it_is_one_line(config: str, before: str, says: str) -> None:
    name, top = fresh_name(), find().top
    up = f"{sys.executable} -m testbed.up --name {name} --config {config} --detach"
    shell = f"{before.format(top=top)} && exec {up}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", shell],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert says.format(top=top, name=name) in done.stderr
    assert not Runtime.of(name).folder.exists()


def test_more_cores_than_there_are_is_one_line() -> None:
    with open_folder() as folder:
        (folder / "many.yaml").write_text("units: [{hosts: [{}, {cpus: 1000}]}]\n")
        up = command("testbed.up", "--name", fresh_name(), "--config", str(folder / "many.yaml"), "--detach")
    assert (up.returncode, up.stderr.count("\n")) == (2, 1)
    assert "u1h2: cpus: 1000; this machine has " in up.stderr
