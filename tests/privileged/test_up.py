"""`up`, `status` and `down` on the real kernel: coming, going, and being killed, with nothing left of any of
it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testbed.api.down import ASK_S
from testbed.client.runtime import Runtime
from tests.limits import CALL_S
from tests.privileged.commands import (
    ROOT,
    WAIT_S,
    Testbed,
    bounded,
    command,
    environment,
    forget,
    fresh_name,
    pid_of,
    pids_in_testbed,
    running,
    start,
    wait_for,
)
from tests.processes import alive

pytestmark = [pytest.mark.needs("xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]

NOBODY = 65534


@pytest.fixture
def name() -> Iterator[str]:
    fresh = fresh_name()
    yield fresh
    forget(fresh)


@pytest.fixture
def make_testbed() -> Iterator[Callable[..., Testbed]]:
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(running(*arguments))


@pytest.fixture
def testbed(make_testbed: Callable[..., Testbed]) -> Testbed:
    return make_testbed()


def state(stat: Path) -> str:
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def status(name: str) -> dict[str, Any]:
    done = command("testbed.status", "--name", name, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def settled(name: str) -> dict[str, Any]:
    """Return the answer of `status` when the controller has answered it in time."""
    answer = status(name)
    deadline = time.monotonic() + WAIT_S
    while not answer["controller"]["ready"]:
        assert time.monotonic() < deadline, answer["controller"]
        answer = status(name)
    return answer


def folder_goes(name: str) -> None:
    """`down` returns when the name is free, which is a moment before."""
    wait_for(lambda: not Runtime.of(name).folder.exists(), "the runtime folder is removed")


def test_up_status_down(testbed: Testbed) -> None:
    answer = settled(testbed.name)
    assert {"name", "state", "pid", "units", "hosts", "circuits", "jobs"} <= set(answer)
    assert (answer["name"], answer["state"], answer["jobs"]) == (testbed.name, "ready", [])
    assert [unit["hosts"] for unit in answer["units"]] == [4, 4, 2, 2]
    assert len(answer["hosts"]) == 12
    assert len(answer["circuits"]) == 4
    assert {link["rate_mbps"] for link in answer["links"]} == {200.0}
    assert answer["controller"]["ready"]
    assert Path(f"/proc/{answer['pid']}").exists()
    assert "4 hosts (0 in use)" in command("testbed.status", "--name", testbed.name).stdout
    again = command("testbed.up", "--name", testbed.name)
    assert again.returncode == 2
    assert f"is running already (pid {answer['pid']})" in again.stderr
    down = command("testbed.down", "--name", testbed.name)
    assert (down.returncode, down.stdout) == (0, f"testbed '{testbed.name}' is down\n")
    folder_goes(testbed.name)
    wait_for(lambda: not alive(answer["pid"]), "the main process ends")


def test_two_at_once_and_the_list_of_both(testbed: Testbed, make_testbed: Callable[..., Testbed]) -> None:
    other = make_testbed("rack")
    listed = json.loads(command("testbed.status", "--json").stdout)
    assert {testbed.name, other.name} <= {row["name"] for row in listed}
    assert command("testbed.down", "--name", other.name).returncode == 0
    assert status(testbed.name)["state"] == "ready"


def test_kill_9_of_the_main_process_leaves_nothing_and_the_name_is_free(testbed: Testbed) -> None:
    inside = pids_in_testbed(testbed.pid)
    assert len(inside) >= 5  # unshare, init, daemon, two of Open vSwitch, the controller
    os.kill(testbed.pid, signal.SIGKILL)
    wait_for(
        lambda: not [pid for pid in inside if alive(pid)], "the kernel ends every process of the testbed"
    )
    shown = command("testbed.status", "--name", testbed.name)
    assert shown.returncode == 1
    assert f"its main process (pid {testbed.pid}) was killed" in shown.stdout
    again = command("testbed.up", "--config", "rack", "--name", testbed.name, "--detach")
    assert again.returncode == 0, again.stderr
    assert command("testbed.down", "--name", testbed.name).returncode == 0


LOCKS_ALL = """
import fcntl, os, sys
locked = 0
for name in ("lock", "owner", "main.json", "topology.json", "history.jsonl", "log", "jobs", "."):
    for mode in (os.O_RDWR, os.O_RDONLY):
        try:
            fd = os.open(os.path.join(sys.argv[1], name), mode)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked += 1
        except OSError:
            pass
print(locked, flush=True)
fd = os.open(os.path.join(sys.argv[1], "owner"), os.O_RDONLY)
fcntl.lockf(fd, fcntl.LOCK_SH)  # waits until its writer has gone
print("for reading", flush=True)
sys.stdin.read()
"""


def test_locks_of_its_owner_hold_up_nobody_when_it_is_dead(make_testbed: Callable[..., Testbed]) -> None:
    """The owner, an ordinary user, locks whatever it can open; then the main process is killed."""
    testbed = make_testbed("rack", {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)})
    runtime = Runtime.of(testbed.name)
    stranger = subprocess.Popen(
        ["/usr/bin/python3", "-c", LOCKS_ALL, str(runtime.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
    )
    try:
        with bounded(stranger):
            assert stranger.stdout
            assert int(stranger.stdout.readline()) > 0
        assert status(testbed.name)["state"] == "ready"
        os.kill(testbed.pid, signal.SIGKILL)
        with bounded(stranger):
            assert stranger.stdout.readline() == "for reading\n"
        assert command("testbed.status", "--name", testbed.name, uid=NOBODY).returncode == 1
        began = time.monotonic()
        down = command("testbed.down", "--name", testbed.name)
        assert (down.returncode, down.stderr) == (0, "")
        assert "had died; what it left is removed" in down.stdout
        assert time.monotonic() - began < ASK_S, "it does not wait for one that is dead to end"
        again = command("testbed.up", "--config", "rack", "--name", testbed.name, "--detach")
        assert again.returncode == 0, again.stderr
        assert command("testbed.down", "--name", testbed.name).returncode == 0
    finally:
        stranger.communicate("", timeout=CALL_S)


def test_ctrl_c_while_it_comes_up(name: str) -> None:
    for _ in range(3):
        with bounded(start("testbed.up", "--name", name)) as main:
            assert main.stdout
            first = main.stdout.readline()  # a phase is done, so there are devices
            assert first.split()[0] == "namespaces"
            main.send_signal(signal.SIGINT)
            rest = main.stdout.read()
            _, errors = main.communicate(timeout=CALL_S)
        assert not Runtime.of(name).folder.exists()
        if "is up after" not in rest:
            break
        assert main.returncode == 0, "this test was held up, and asked it to end when it was up"
    assert main.returncode == 130, errors


def test_ctrl_c_when_it_is_up_ends_it_in_order(name: str) -> None:
    main = start("testbed.up", "--config", "rack", "--name", name)
    assert main.stdout
    for line in main.stdout:
        if "is up after" in line:
            break
    main.send_signal(signal.SIGINT)
    assert main.wait(WAIT_S) == 0
    assert not Runtime.of(name).folder.exists()


def test_the_death_of_open_vswitch_is_reported_and_ends_the_testbed(name: str) -> None:
    main = start("testbed.up", "--config", "rack", "--name", name)
    assert main.stdout
    for line in main.stdout:
        if "is up after" in line:
            break
    os.kill(pid_of(main.pid, "ovs-vswitchd"), signal.SIGKILL)
    _, errors = main.communicate(timeout=WAIT_S)
    assert main.returncode == 1
    assert "ovs-vswitchd was killed by signal 9" in errors
    folder = Runtime.of(name).folder
    assert sorted(path.name for path in folder.iterdir()) == ["died.json", "log"]
    logged = (folder / "log" / "daemon.log").read_text().splitlines()[-1]
    assert logged.startswith("the testbed ends: "), logged
    assert "ovs-vswitchd was killed by signal 9" in logged
    shown = command("testbed.status", "--name", name)
    assert shown.returncode == 1
    assert "it died at " in shown.stdout
    assert "ovs-vswitchd was killed by signal 9" in shown.stdout
    assert f"in {folder / 'log'}: daemon.log ovs-vswitchd.log" in shown.stdout


def test_the_death_of_the_daemon_is_reported(name: str) -> None:
    main = start("testbed.up", "--config", "rack", "--name", name)
    assert main.stdout
    for line in main.stdout:
        if "is up after" in line:
            break
    os.kill(pid_of(main.pid, "testbed.daemon.process"), signal.SIGKILL)
    _, errors = main.communicate(timeout=WAIT_S)
    assert main.returncode == 1
    assert "the daemon ended unasked" in errors


def test_the_controller_is_started_again_and_circuits_stay(testbed: Testbed) -> None:
    before = settled(testbed.name)["circuits"]
    os.kill(pid_of(testbed.pid, "controller"), signal.SIGKILL)
    wait_for(lambda: status(testbed.name)["controller"]["restarts"] == 1, "the controller is started again")
    assert settled(testbed.name)["circuits"] == before


@pytest.mark.needs("ryu")
def test_on_ryu_circuits_change_while_others_carry_and_the_controller_comes_again(
    make_testbed: Callable[..., Testbed],
) -> None:
    """Circuits change over the fast path; tests/privileged/test_controller.py has that with flows alone."""
    testbed = make_testbed("default", None, "--controller", "ryu")
    controller = settled(testbed.name)["controller"]
    assert controller["library"] == "ryu 4.34"
    assert "controller  running on ryu 4.34\n" in command("testbed.status", "--name", testbed.name).stdout
    pid = pid_of(testbed.pid, "controller")
    assert ".venv-ryu/" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    done = command("testbed.circuits", "--name", testbed.name, "request", "u1-u3")
    assert done.returncode == 0, done.stderr
    assert re.search(r"dark ([0-9.]+) ms asked, measured ([0-9.]+) ms; .*added .*u1o\d-u3o\d", done.stdout), (
        done.stdout
    )
    circuits = settled(testbed.name)["circuits"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: status(testbed.name)["controller"]["restarts"] == 1, "the controller is started again")
    again = settled(testbed.name)
    assert (again["circuits"], again["controller"]["library"]) == (circuits, "ryu 4.34")


def test_down_of_one_that_hangs_is_by_force(testbed: Testbed) -> None:
    daemon = pid_of(testbed.pid, "testbed.daemon.process")
    os.kill(daemon, signal.SIGSTOP)
    tasks = Path(f"/proc/{daemon}/task")
    wait_for(
        lambda: {state(task / "stat") for task in tasks.iterdir()} == {"T"},
        "every thread of the daemon has stopped",
    )
    down = command("testbed.down", "--name", testbed.name)
    assert down.returncode == 0, down.stderr
    folder_goes(testbed.name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("units: [{hosts: 0}]", "units[0].hosts"),
        ("units: [{hosts: 2, colour: red}]", "colour"),
        ("units: [{hosts: two}]", "two"),
        ("units: [{hosts: 2}]\nhost_rate_mbps: 900000000", "host_rate_mbps"),
    ],
)
def test_a_bad_configuration_starts_nothing(name: str, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    done = command("testbed.up", "--config", str(path), "--name", name, "--detach")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert says in done.stderr
    assert not Runtime.of(name).folder.exists()


def test_too_few_open_files_are_named(name: str) -> None:
    """Root that may not raise its limits, as in some containers."""
    argv = [
        "prlimit",
        "--nofile=64:64",
        "setpriv",
        "--bounding-set=-sys_resource",
        "--inh-caps=-sys_resource",
    ]
    argv += [sys.executable, "-m", "testbed.up", "--name", name, "--detach"]
    ended = subprocess.run(
        argv, cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode == 3, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"testbed up: a process may have 64 files open here, and a network of this size takes up to \d+: "
        r"allow more \(ulimit -n 65536\)",
        last,
    ), ended.stderr


@pytest.mark.parametrize("capability", ["net_raw", "net_admin", "sys_admin"])
def test_a_capability_that_is_missing_is_named_before_anything_starts(name: str, capability: str) -> None:
    """Root that may not do all, as in some containers; what works was found to, with other rights."""
    argv = ["setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}"]
    argv += [sys.executable, "-m", "testbed.up", "--name", name, "--detach"]
    ended = subprocess.run(
        argv, cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode == 3, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("testbed up: this host lacks capabilities ("), ended.stderr
    assert f" refuses {capability.upper()} (" in last
    assert not Runtime.of(name).folder.exists()


def test_without_root(name: str) -> None:
    for argv in (["testbed.up", "--name", name], ["testbed.status", "--name", name]):
        done = command(*argv, uid=NOBODY)
        assert done.returncode == (3 if argv[0] == "testbed.up" else 2), done.stderr
    assert "needs root" in command("testbed.up", "--name", name, uid=NOBODY).stderr


def test_the_sockets_are_for_root_and_the_calling_user(make_testbed: Callable[..., Testbed]) -> None:
    testbed = make_testbed("rack", {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)})
    done = command("testbed.status", "--name", testbed.name, uid=NOBODY)
    assert done.returncode == 0, done.stderr
    stranger = command("testbed.status", "--name", testbed.name, uid=4242)
    assert stranger.returncode != 0
    assert "another user" in stranger.stderr
    for path in (Runtime.of(testbed.name).socket, Runtime.of(testbed.name).controller_socket):
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, NOBODY)
    refused = command("testbed.down", "--name", testbed.name, uid=4242)
    assert refused.returncode != 0
    assert command("testbed.down", "--name", testbed.name, uid=NOBODY).returncode == 0
