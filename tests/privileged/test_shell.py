"""`testbed shell`: Mininet's prompt on a testbed that another process has, as that testbed's user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from testbed.client.runtime import Runtime
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, WAIT_S, Testbed, environment, wait_for
from tests.privileged.owned import owned, rights
from tests.terminals import Screen

pytestmark = pytest.mark.needs("xdp", "ovs")


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with owned() as made:
        yield made


def shell(testbed: Testbed, *commands: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    words = [word for each in commands for word in ("-c", each)]
    return subprocess.run(
        [sys.executable, "-m", "testbed.shell", "--name", testbed.name, *words],
        input=script, capture_output=True, text=True, timeout=WAIT_S, check=False, **rights(),
    )  # fmt: skip


def test_pingall(testbed: Testbed) -> None:
    done = shell(testbed, "pingall")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "*** Results: 0% dropped (6/6 received)\n" in done.stdout


def test_what_is_where(testbed: Testbed) -> None:
    done = shell(testbed, "nodes", "links", "dump", "py net.get('u2h1').IP()", "py u1h1.MAC()", "net", "wait")
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "u1 u1h1 u1h2 u2 u2h1",
        "u1h1-eth0<->u1-h1 (OK OK)",
        "<RemoteHost u1h2: eth0:10.0.1.2 pid=None>",
        "u2h1 eth0:u2-h1",
        "10.0.2.1",
        "02:00:0a:00:01:01",
    ):
        assert line in done.stdout, done.stdout
    optical = [line for line in done.stdout.splitlines() if line.startswith("u1-o1<->x-u1o1 ")]
    assert [line.strip() for line in optical] == ["u1-o1<->x-u1o1 (OK OK)"]


def test_commands_in_hosts(testbed: Testbed) -> None:
    script = "u1h1 cd /usr\nu1h1 echo $(pwd) u2h1 $(id -u)\nu2h1 exit_code() { return 9; }\nu2h1 exit_code\n"
    done = shell(testbed, script=script)
    assert (done.returncode, done.stdout, done.stderr) == (9, "/usr 10.0.2.1 54321\n", "")
    assert "1 received" in shell(testbed, "u1h1 ping -c1 -W5 u2h1").stdout


def test_a_link_goes_down_and_up(testbed: Testbed) -> None:
    down = shell(testbed, "link u1h2 u1 down", "links", "u1h1 ping -c1 -W1 u1h2")
    assert down.returncode == 1
    assert "u1h2-eth0<->u1-h2 (DOWN DOWN)" in down.stdout
    assert "0 received" in down.stdout
    up = shell(testbed, "link u1h2 u1 up", "links", "u1h1 ping -c1 -W5 u1h2")
    assert up.returncode == 0, up.stdout
    assert "u1h2-eth0<->u1-h2 (OK OK)" in up.stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonesuch", "*** Unknown command: nonesuch"),
        ("xterm u1h1", "testbed exec --name {name} u1h1"),
        ("switch u1 stop", "take links down by: link NODE NODE down"),
        ("dpctl dump-flows", "see: "),
        ("u1 ip link", "u1: commands run in hosts"),
        ("link u1h1 u2 down", "u1h1 and u2 are not connected"),
        ("source /nonesuch", "source /nonesuch: No such file or directory"),
    ],
)
def test_what_has_no_place_here_is_one_line(testbed: Testbed, line: str, says: str) -> None:
    done = shell(testbed, line)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert says.format(name=testbed.name) in done.stderr


def test_the_prompt(testbed: Testbed) -> None:
    argv = [sys.executable, "-m", "testbed.shell", "--name", testbed.name]
    shown = Screen(["/usr/bin/env", "-C", str(ROOT), "HOME=/nonesuch", *argv])
    shown.read_until("mininet> ")
    shown.type("u1h1 sleep 1000\n")
    shown.read_until("sleep 1000")
    shown.type("\x03")
    shown.read_until("mininet> ")
    shown.type("u1h1 ping -c1 u1h2\n")
    shown.read_until("1 received")
    shown.read_until("mininet> ")
    shown.type("exit\n")
    assert shown.wait(CALL_S) == 0


def test_a_shell_that_is_interrupted_as_it_begins_is_not_kept(testbed: Testbed) -> None:
    argv = [sys.executable, "-m", "testbed.shell", "--name", testbed.name]
    shown = Screen(["/usr/bin/env", "-C", str(ROOT), "HOME=/nonesuch", *argv])
    shown.read_until("mininet> ")
    shown.type("u1h1 sleep 1000\n")
    wait_for(lambda: len(psutil.Process(shown.pid).children()) > 0, "the host's shell begins")
    shown.type("\x03")
    shown.read_until("Interrupt")
    shown.read_until("mininet> ")
    shown.type("u1h1 echo $((6 * 7)) sheep\n")
    shown.read_until("42 sheep")
    shown.read_until("mininet> ")
    shown.type("exit\n")
    assert shown.wait(CALL_S) == 0


def test_a_testbed_that_is_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.shell", "--name", "never-started", "-c", "nodes"],
        cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert not Runtime.of("never-started").alive()
