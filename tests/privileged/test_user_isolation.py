"""Users apart on root's testbed: whatever a job started ends with it, a host that somebody is at is no other
user's, hosts of different users' jobs do not reach each other, and users' classes have no links.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError
from tests.limits import CALL_S
from tests.privileged.commands import (
    ROOT,
    WAIT_S,
    Testbed,
    environment,
    open_folder,
    pids_in_testbed,
    running,
    wait_for,
)

pytestmark = pytest.mark.needs("xdp", "ovs")
ONE, OTHER = 54331, 54332

# An ordinary job that forks, leaves its session, and becomes another program with nothing in its environment;
# hidden from /proc's owner, as whoever gives up being traced is, and in a network namespace of its own where
# the kernel lets a user have one.
LEAVING = """
import ctypes, os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if "away" in sys.argv:
            ctypes.CDLL(None).unshare(0x10000000 | 0x40000000)
        os.execve("/usr/bin/sleep", ["sleep", "4321"], {})
    os._exit(0)
"""
# Sends five datagrams to a host and listens for those of others; says how many came.
TALKING = """
import socket, sys, time
goal, listen_s = sys.argv[1], float(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
    ours.bind(("", 5000))
    ours.settimeout(0.1)
    for _ in range(5):
        ours.sendto(b"x", (goal, 5000))
    heard, until = 0, time.monotonic() + listen_s
    while time.monotonic() < until:
        try:
            ours.recv(100)
        except TimeoutError:
            continue
        heard += 1
print("heard", heard)
"""
SEEING = """
import os
class Seeing:
    def lay_out(self, workers, site):
        with open("/proc/net/dev") as devices:
            names = sorted(line.split(":")[0].strip() for line in devices if ":" in line)
            raise ValueError("it sees " + " ".join(names))
def Seen():
    Seeing().lay_out([], None)
"""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running("rack") as made:
        yield made


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as made:
        made.chmod(0o777)
        for name, text in (("leave.py", LEAVING), ("talk.py", TALKING), ("see.py", SEEING)):
            (made / name).write_text(text)
        yield made


def argv_of(testbed: Testbed, command: str, *words: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"testbed.{command}", "--name", testbed.name, *words]


def behind(uid: int) -> dict[str, str]:
    """The environment of a command of root's behind sudo."""
    return environment({"SUDO_UID": str(uid), "SUDO_GID": str(uid), "PYTHONPATH": str(ROOT)})


def run(testbed: Testbed, folder: Path, uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    """`testbed run` as that user."""
    argv = argv_of(testbed, "run", "--timeout", "100", *words)
    return subprocess.run(
        argv, cwd=folder, env=behind(uid), capture_output=True, text=True, timeout=WAIT_S, check=False
    )


@contextlib.contextmanager
def begun(testbed: Testbed, folder: Path, uid: int, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A job of that user's that runs, until the block ends it."""
    argv = argv_of(testbed, "run", "--timeout", "100", *words)
    with subprocess.Popen(
        argv, cwd=folder, env=behind(uid), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            wait_for(
                lambda: [job["state"] for job in status(testbed)["jobs"]] == ["running"], "a job that runs"
            )
            yield process
        finally:
            process.terminate()
            process.wait(CALL_S)
    wait_for(lambda: not status(testbed)["jobs"], "no job")


def status(testbed: Testbed) -> dict[str, Any]:
    answer: dict[str, Any] = rpc.call(Runtime.of(testbed.name).socket, "status")
    return answer


def of_user(testbed: Testbed, uid: int) -> list[str]:
    """The commands of the processes of a testbed that run as this user, and have not ended."""
    words = []
    for pid in pids_in_testbed(testbed.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            said = Path(f"/proc/{pid}/status").read_text()
            if f"\nUid:\t{uid}\t" in said and "\nState:\tZ" not in said:
                words.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
    return words


@pytest.mark.parametrize("words", [[], ["away"]], ids=["there", "in a namespace of its own"])
@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["started", "forked"])
def test_a_job_ends_with_all_that_it_started(
    testbed: Testbed, folder: Path, options: list[str], words: list[str]
) -> None:
    ended = run(testbed, folder, ONE, "--place", "u1:2", *options, "leave.py", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert of_user(testbed, ONE) == []


def test_without_cgroups_it_is_known_by_its_host(folder: Path) -> None:
    """A mount namespace in which no hierarchy can be written, as in a container."""
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup; exec "$@"', "sh"]
    name = f"{os.getpid()}-plain"
    made = Testbed(name, 0)
    up = [*hidden, sys.executable, "-m", "testbed.up", "--detach", "--config", "rack", "--name", name]
    started = subprocess.run(
        up, cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert started.returncode == 0, started.stderr
    try:
        made = Testbed(name, int(json.loads(Runtime.of(name).main.read_text())["pid"]))
        ended = run(made, folder, ONE, "--place", "u1:2", "--preload", "leave.py")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert of_user(made, ONE) == []
    finally:
        down = subprocess.run(
            argv_of(made, "down"), cwd=ROOT, env=environment({}), timeout=WAIT_S, check=False
        )
    assert down.returncode == 0


def test_a_host_that_somebody_is_at_is_no_other_users(testbed: Testbed, folder: Path) -> None:
    """Whoever is behind sudo is whom a command of root's is for."""
    argv = argv_of(testbed, "exec", "u1h3", "--", "sleep", "4321")
    with subprocess.Popen(argv, cwd=ROOT, env=behind(ONE), stderr=subprocess.PIPE) as command:
        try:
            wait_for(
                lambda: [each["commands_of"] for each in status(testbed)["hosts"]][2] == [str(ONE)],
                "the command",
            )
            refused = run(testbed, folder, OTHER, "--place", "u1:4", "leave.py")
            assert refused.returncode == 2
            assert refused.stderr.splitlines() == [
                "testbed run: --place u1:4: u1 has 4 hosts, 1 of them in use; 3 can be placed there; "
                f"a command of {ONE} (testbed exec) keeps u1h3 from jobs of others"
            ]
            assert run(testbed, folder, OTHER, "--place", "u1:3", "leave.py").returncode == 0
            assert run(testbed, folder, ONE, "--place", "u1:4", "leave.py").returncode == 0
            shown = subprocess.run(
                argv_of(testbed, "status"), capture_output=True, text=True, timeout=WAIT_S, check=True
            )
            assert f"commands    at u1h3 ({ONE}); these hosts are kept from jobs of others" in shown.stdout
        finally:
            command.kill()
            command.wait(CALL_S)
    wait_for(lambda: not any(each["commands_of"] for each in status(testbed)["hosts"]), "no command")


def test_nobody_enters_the_host_of_anothers_job(testbed: Testbed, folder: Path) -> None:
    with begun(testbed, folder, ONE, "--place", "u1:1", "talk.py", "10.0.1.1", "60"):
        request = {"host": "u1h1", "argv": ["true"], "cwd": "/", "environ": {}}
        with pytest.raises(TestbedError, match=r"^u1h1: it is held by a job of another user's$"):
            rpc.call(Runtime.of(testbed.name).socket, "exec", uid=OTHER, **request)


@pytest.mark.parametrize(("uid", "heard"), [(OTHER, 0), (ONE, 5)], ids=["of two users", "of one user"])
def test_jobs_reach_each_other_where_they_are_one_users(
    testbed: Testbed, folder: Path, uid: int, heard: int
) -> None:
    before = sum(status(testbed)["kept_apart"].values())
    with begun(testbed, folder, ONE, "--place", "u1:1", "talk.py", "10.0.1.4", "5") as first:
        second = run(testbed, folder, uid, "--place", "u1:1", "talk.py", "10.0.1.1", "0")
        assert second.returncode == 0, second.stdout + second.stderr
        assert first.stdout
        said = next(line for line in first.stdout if "heard" in line)
    assert said.split()[-1] == str(heard)
    assert sum(status(testbed)["kept_apart"].values()) - before == 5 - heard
    shown = subprocess.run(
        argv_of(testbed, "status"), capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert (
        "apart       frames to hosts of other users' jobs, dropped: " in shown.stdout
        or not before + 5 - heard
    )


def test_hosts_without_a_job_are_as_they_were(testbed: Testbed, folder: Path) -> None:
    with begun(testbed, folder, ONE, "--place", "u1:1", "talk.py", "10.0.1.4", "60"):
        ping = argv_of(testbed, "exec", "u1h4", "--", "ping", "-c", "1", "-W", "5", "u1h1")
        assert (
            subprocess.run(
                ping, cwd=ROOT, env=environment({}), timeout=WAIT_S, check=False, capture_output=True
            ).returncode
            == 0
        )


def test_a_shared_testbed_keeps_nobody_apart(folder: Path) -> None:
    config = folder / "shared.yaml"
    config.write_text("units: [{hosts: 2}]\nshared: true\n")
    with running(str(config)) as made:
        assert status(made)["kept_apart"] is None
        with begun(made, folder, ONE, "--place", "u1:1", "talk.py", "10.0.1.2", "5") as first:
            assert run(made, folder, OTHER, "--place", "u1:1", "talk.py", "10.0.1.1", "0").returncode == 0
            assert first.stdout
            assert next(line for line in first.stdout if "heard" in line).split()[-1] == "5"


def test_users_classes_have_no_links(testbed: Testbed, folder: Path) -> None:
    refused = run(testbed, folder, ONE, "--place", "u1:1", "--sync", "see.py:Seeing", "leave.py")
    assert "its lay_out raised ValueError: it sees lo" in refused.stderr
    argv = [sys.executable, "-P", "-m", "testbed.up", "--name", "none", "--config", "see.py:Seen"]
    refused = subprocess.run(
        argv, cwd=folder, env=behind(ONE), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert "it raised ValueError: it sees lo" in refused.stderr
