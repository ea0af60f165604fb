"""`testbed exec` on a testbed: whose network, whose rights, and what is left of it. How a command is attached
to its client is tests/unit/test_host_commands.py's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import WAIT_S, Testbed, bounded, command, pids_in_testbed, running, wait_for
from tests.privileged.owned import GROUP, OTHER_GROUP, OWNER, owned, rights
from tests.terminals import Screen

pytestmark = pytest.mark.needs("xdp", "ovs")
STRANGER = 54331


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with owned() as made:
        yield made


def argv_of(testbed: Testbed, host: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "testbed.exec", "--name", testbed.name, host, "--", *words]


def run(testbed: Testbed, host: str, *words: str, **changes: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv_of(testbed, host, *words), capture_output=True, text=True, timeout=WAIT_S, check=False,
        **(rights() | changes),
    )  # fmt: skip


def test_it_is_the_owner_with_the_groups_that_the_kernel_says(testbed: Testbed) -> None:
    said = run(testbed, "u1h1", "sh", "-c", "id -u; id -g; id -G; grep CapEff /proc/self/status")
    assert said.stdout.split() == [f"{OWNER}", f"{GROUP}", f"{GROUP}", f"{OTHER_GROUP}", "CapEff:", "0" * 16]


def test_root_is_root_and_a_stranger_is_nobody(testbed: Testbed) -> None:
    assert run(testbed, "u1h1", "id", "-u", user=0, group=0, extra_groups=[]).stdout == "0\n"
    refused = run(testbed, "u1h1", "true", **rights(STRANGER, STRANGER, ()))
    assert refused.returncode in (2, 3)
    assert "sudo" in refused.stderr or "only root and the user" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_it_is_in_the_host_s_network(testbed: Testbed) -> None:
    for host, address in (("u1h1", "10.0.1.1"), ("u1h2", "10.0.1.2"), ("u2h1", "10.0.2.1")):
        assert f" {address}/24 " in run(testbed, host, "ip", "-4", "-o", "address", "show", "eth0").stdout


def test_a_host_that_is_not_there_is_one_line(testbed: Testbed) -> None:
    done = run(testbed, "u7h1", "true")
    assert (done.returncode, done.stderr) == (
        2,
        "testbed exec: host u7h1: no such host; there are u1h1, u1h2, u2h1\n",
    )


def test_anybody_s_ping_works_without_a_capability(testbed: Testbed) -> None:
    done = run(testbed, "u1h1", "setpriv", "--no-new-privs", "ping", "-c", "1", "-W", "5", "u2h1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_exit_codes_and_pipes(testbed: Testbed) -> None:
    done = run(testbed, "u2h1", "sh", "-c", "tr a-z A-Z; echo wrong >&2; exit 7", input="hello")
    assert (done.returncode, done.stdout, done.stderr) == (7, "HELLO", "wrong\n")
    assert run(testbed, "u2h1", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL
    assert run(testbed, "u2h1", "nonesuch").returncode == 127


def test_a_server_in_one_and_its_client_in_another(testbed: Testbed) -> None:
    serve = (
        "import socket; s = socket.create_server(('', 5777)); print('up', flush=True); "
        "print(s.accept()[0].recv(9))"
    )
    connect = "import socket; socket.create_connection(('u1h2', 5777)).send(b'hello')"
    server = subprocess.Popen(
        argv_of(testbed, "u1h2", sys.executable, "-c", serve), stdout=subprocess.PIPE, text=True, **rights()
    )
    with bounded(server):
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        assert run(testbed, "u1h1", sys.executable, "-c", connect).returncode == 0
        assert server.stdout.readline() == "b'hello'\n"
        assert server.wait(WAIT_S) == 0


def test_a_terminal_and_control_c(testbed: Testbed) -> None:
    ready = "trap 'exit 5' INT; tty; echo ready; while :; do sleep 0.1; done"
    os_rights = ["setpriv", f"--reuid={OWNER}", f"--regid={GROUP}", "--clear-groups"]
    shown = Screen(["/usr/bin/env", *os_rights, *argv_of(testbed, "u1h1", "sh", "-c", ready)])
    try:
        shown.read_until(r"/dev/pts/\d+\r\nready")
        shown.type("\x03")
        assert shown.wait(CALL_S) == 5
    finally:
        os.close(shown.fd)


def lines_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def started(testbed: Testbed) -> tuple[subprocess.Popen[str], list[int]]:
    """A client, and its command's processes: which ignore what they can."""
    before = set(pids_in_testbed(testbed.pid))
    script = "trap '' HUP TERM; setsid sleep 777 & echo up; sleep 777; sleep 777"
    client = subprocess.Popen(
        argv_of(testbed, "u1h1", "sh", "-c", script), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **rights(),
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == "up\n"
    made: list[int] = []

    def is_all_there() -> bool:  # what follows the word is started after it
        made[:] = [pid for pid in pids_in_testbed(testbed.pid) if pid not in before]
        made[:] = [pid for pid in made if any(word in lines_of(pid) for word in ("sleep", "keeper.py"))]
        return len(made) >= 3

    wait_for(is_all_there, "the command's processes are there")
    return client, made


def test_nothing_is_left_of_a_client_that_was_killed(testbed: Testbed) -> None:
    client, made = started(testbed)
    client.kill()
    client.wait(CALL_S)
    wait_for(lambda: not set(made) & set(pids_in_testbed(testbed.pid)), "the command's processes are gone")


def test_the_testbed_s_end_is_the_command_s(nothing_left: None) -> None:
    with owned() as testbed:
        client, _ = started(testbed)
        down = command("testbed.down", "--name", testbed.name)
        assert down.returncode == 0, down.stderr
        with bounded(client):
            assert client.wait(CALL_S) == 1
        assert client.stderr is not None
        assert client.stderr.read() == "testbed exec: the testbed is ending\n"


def test_what_the_machine_mounts_later_is_seen_in_hosts_and_what_a_testbed_mounts_stays_there(
    tmp_path: Path,
) -> None:
    """A machine's mounts are shared, with systemd; those of a container and of a lane of tests may not be."""
    shared, later = tmp_path / "shared", tmp_path / "shared" / "later"
    later.mkdir(parents=True)
    mount(str(shared), str(shared), "--bind")
    try:
        mount("--make-shared", str(shared))
        with running("rack") as testbed:
            mount("-t", "tmpfs", "later", str(later))
            try:
                (later / "file").write_text("here")
                said = command(
                    "testbed.exec", "--name", testbed.name, "u1h1", "--", "cat", str(later / "file")
                )
                assert (said.returncode, said.stdout) == (0, "here"), said.stderr
                mounting = ("mount", "-t", "tmpfs", "inside", str(shared))
                done = command("testbed.exec", "--name", testbed.name, "u1h1", "--", *mounting)
                assert done.returncode == 0, done.stderr
                assert (later / "file").read_text() == "here"
            finally:
                umount(later)
    finally:
        umount(shared)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=CALL_S)


def umount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True, timeout=CALL_S)
