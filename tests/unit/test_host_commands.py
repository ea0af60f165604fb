"""Commands for clients that wait for them: attached, signalled and ended, with the real processes but without
a testbed around them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.requests import CommandRequest, asked
from testbed.daemon import commands
from testbed.daemon.commands import Commands
from testbed.emulation.enclosures import Enclosure
from testbed.emulation.spawner import Spawner, Started
from testbed.errors import RequestError, TestbedError
from testbed.messages.coding import as_json
from tests.limits import CALL_S
from tests.processes import ENCLOSURES
from tests.terminals import Screen

WAIT_S = 60.0
# What `testbed exec` does once it knows the testbed's socket.
CLIENT = """
import os, sys
from pathlib import Path
from testbed.host_commands import client
code, failure = client.attended(Path(sys.argv[1]), "u1h1", sys.argv[2:], os.getcwd(), os.environ)
if failure:
    print(failure, file=sys.stderr)
sys.exit(code)
"""


class Served:
    """Commands, served as the daemon does."""

    def __init__(self, folder: Path, most: int = 3) -> None:
        self.socket = folder / "s"
        self.spawner = Spawner()
        self.commands = Commands(self, lambda host, user, runs_as: contextlib.nullcontext(), most)
        self.enclosed = ENCLOSURES.opened

    def popen_in(
        self, host: str, argv: Sequence[str], enclosure: Enclosure | None = None, **options: Any
    ) -> Started:
        if host != "u1h1":
            raise RequestError(f"host {host}: no such host; there are u1h1")
        if os.geteuid():
            options["groups"] = None  # only root may set them
        assert enclosure
        options["env"] |= enclosure.mark
        return self.spawner.popen(None, argv, **options)

    def handle(
        self, request: dict[str, Any], peer: rpc.Peer, emit: rpc.Emit, disconnected: threading.Event
    ) -> Any:
        command = asked(CommandRequest, request)
        return as_json(self.commands.answer(command, Caller.asking(peer), peer, emit, disconnected))

    def argv(self, *command: str) -> list[str]:
        return [sys.executable, "-c", CLIENT, str(self.socket), *command]

    def run(self, *command: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """The exit code, and what was written to the two streams."""
        done = subprocess.run(
            self.argv(*command), input=stdin, capture_output=True, timeout=WAIT_S, check=False
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    try:
        with rpc.serve(made.socket, made.handle):
            yield made
    finally:
        made.spawner.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# ------------------------------------------------------------------ pipes and codes


def test_exit_codes_are_the_command_s(served: Served) -> None:
    assert served.run("true") == (0, "", "")
    assert served.run("sh", "-c", "exit 7")[0] == 7
    assert served.run("sh", "-c", "kill -KILL $$")[0] == 128 + signal.SIGKILL
    code, _, error = served.run("nonesuch")
    assert (code, error) == (127, "run nonesuch: No such file or directory\n")
    code, _, error = served.run("/etc")
    assert (code, error) == (126, "run /etc: Permission denied\n")


def test_the_death_of_a_keeper_is_said(served: Served) -> None:
    """A command that a signal ended has no words: this is 137 of another kind."""
    code, _, error = served.run("sh", "-c", "kill -KILL $PPID; sleep 60")
    assert (code, error) == (128 + signal.SIGKILL, "its keeper was ended by SIGKILL\n")


def test_standard_streams_are_the_client_s_own(served: Served) -> None:
    lines = b"".join(b"%d\n" % number for number in range(100_003))
    code, output, error = served.run("sh", "-c", "cat; echo after >&2", stdin=lines)
    assert (code, output, error) == (0, lines.decode(), "after\n")


def test_the_working_folder_and_the_mask_are_the_client_s(served: Served, tmp_path: Path) -> None:
    done = subprocess.run(
        served.argv("sh", "-c", "pwd; umask; echo $MARK $TESTBED_JOB $HOME"),
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.getcwd(), "MARK": "7", "TESTBED_JOB": "mine", "HOME": "/elsewhere"},
        umask=0o137,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stdout.split() == [str(tmp_path), "0137", "7", "/elsewhere"]


def test_a_folder_that_cannot_be_entered_is_named(served: Served) -> None:
    request: dict[str, Any] = {"host": "u1h1", "argv": ["true"], "cwd": "/nonesuch", "environ": {}}
    assert rpc.call(served.socket, "exec", on_event=lambda _, fd: os.close(fd or -1), **request) == {
        "exit_code": 126,
        "failure": "enter /nonesuch: No such file or directory",
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"host": "u9h9"}, "host u9h9: no such host; there are u1h1"),
        ({"host": None}, "host: .*; a text without NUL"),
        ({"argv": []}, "argv: a program and its arguments are accepted"),
        ({"argv": "true"}, "argv: .*; a list of texts is accepted"),
        ({"argv": ["a\0b"]}, "without NUL characters"),
        ({"cwd": "here"}, "cwd: here; an absolute path is accepted"),
        ({"environ": {"A=B": "c"}}, "environ: names and values are accepted"),
        ({"argv": ["true", "x" * 200_000]}, "run true in u1h1: .*Argument list too long"),
    ],
)
def test_one_clear_line(served: Served, changes: dict[str, Any], says: str) -> None:
    request = {"host": "u1h1", "argv": ["true"], "cwd": "/", "environ": {}} | changes
    with pytest.raises(RequestError, match=says) as caught:
        rpc.call(served.socket, "exec", on_event=lambda _, fd: os.close(fd or -1), **request)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------ ends


def started(served: Served, *command: str, **options: Any) -> tuple[subprocess.Popen[str], int]:
    """A client whose command has said its number."""
    client = subprocess.Popen(
        served.argv("sh", "-c", 'echo $$; exec "$@"', "sh", *command), stdout=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip
    assert client.stdout is not None
    return client, int(client.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(served: Served, number: signal.Signals) -> None:
    client, pid = started(served, "sleep", "1000")
    client.send_signal(number)
    assert client.wait(WAIT_S) == 128 + number
    assert not lives(pid)


def test_a_signal_that_it_handles_is_its_own_affair(served: Served) -> None:
    script = "trap 'echo hit; exit 3' TERM; echo $$; while :; do sleep 0.1; done"
    client = subprocess.Popen(served.argv("sh", "-c", script), stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    client.stdout.readline()
    client.terminate()
    assert client.communicate(timeout=WAIT_S)[0] == "hit\n"
    assert client.returncode == 3


def test_what_a_client_leaves_ends_with_it(served: Served) -> None:
    """Killed, it can say nothing; the command ignores what it can, and has a child of another session."""
    script = "trap '' HUP TERM INT; setsid sleep 1000 & echo $!; echo $$; sleep 1000; sleep 1000"
    client = subprocess.Popen(served.argv("sh", "-c", script), stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    pids = [int(client.stdout.readline()) for _ in range(2)]
    assert all(map(lives, pids))
    client.kill()
    client.wait(CALL_S)
    wait_for(lambda: not any(map(lives, pids)), "the command's processes have ended")


def test_what_a_command_leaves_ends_with_it(served: Served) -> None:
    code, output, _ = served.run("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!")
    assert code == 0
    assert not lives(int(output))


def test_the_end_of_the_testbed_ends_commands(served: Served) -> None:
    client, pid = started(served, "sleep", "1000", stderr=subprocess.PIPE)
    served.commands.stop_all("the testbed is ending", WAIT_S)
    assert not lives(pid)
    assert client.stderr is not None
    assert client.wait(WAIT_S) == 1
    assert "the testbed is ending" in client.stderr.read()
    with pytest.raises(TestbedError, match="the testbed is ending"):
        rpc.call(served.socket, "exec", host="u1h1", argv=["true"], cwd="/", environ={})


def test_so_many_and_no_more(served: Served) -> None:
    clients = [started(served, "sleep", "1000")[0] for _ in range(3)]
    with pytest.raises(RequestError, match=r"^3 commands run in hosts already: wait until one has ended$"):
        rpc.call(served.socket, "exec", host="u1h1", argv=["true"], cwd="/", environ={})
    clients[0].terminate()
    clients[0].wait(WAIT_S)
    assert served.run("true")[0] == 0
    for client in clients[1:]:
        client.terminate()
        client.wait(WAIT_S)


def test_a_client_that_takes_no_part_is_not_waited_for(served: Served) -> None:
    """It gets the keeper's socket and does nothing with it, or gives other than three descriptors."""
    request: dict[str, Any] = {"host": "u1h1", "argv": ["true"], "cwd": "/", "environ": {}}
    given: list[int] = []
    with pytest.raises(TestbedError, match="no answer in 1 s"):
        rpc.call(served.socket, "exec", on_event=lambda _, fd: given.append(fd or -1), timeout_s=1, **request)
    os.close(given.pop())

    def nonsense(_: object, fd: int | None) -> None:
        assert fd is not None
        os.write(fd, b"sxyz")
        os.close(fd)

    assert rpc.call(served.socket, "exec", on_event=nonsense, **request)["exit_code"] == 126


# ------------------------------------------------------------------ a terminal


@pytest.fixture
def screen(served: Served) -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def make(*command: str) -> Screen:
        made.append(Screen(served.argv(*command)))
        return made[-1]

    yield make
    for each in made:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(each.pid, signal.SIGKILL)
            os.waitpid(each.pid, 0)
        os.close(each.fd)


def test_the_command_has_a_terminal_of_the_same_size(screen: Callable[..., Screen]) -> None:
    look = "stty size; test -t 1 && test -t 2 && echo three"
    shown = screen("sh", "-c", f"trap '{look}' WINCH; {look}; while :; do sleep 0.1; done")
    shown.read_until("0 0\r\nthree")
    termios.tcsetwinsize(shown.fd, (31, 97))
    shown.read_until("31 97\r\nthree")


def test_control_c_interrupts_the_command_and_not_the_client(screen: Callable[..., Screen]) -> None:
    shown = screen("sh", "-c", "trap 'echo hit; exit 5' INT; echo ready; while :; do sleep 0.1; done")
    shown.read_until("ready")
    shown.type("\x03")
    assert shown.wait(CALL_S) == 5
    assert "hit" in shown.text


def test_a_shell_has_job_control(screen: Callable[..., Screen]) -> None:
    shown = screen("bash", "--norc", "-i")
    shown.type("PS1='> '; stty -echo; echo rea''dy\n")
    shown.read_until("ready")
    shown.type("sh -c 'echo be''gun; exec sleep 1000'\n")
    shown.read_until("begun")
    shown.type("\x1a")
    shown.read_until("Stopped")
    # a shell that has not reaped it yet does not exit: "There are stopped jobs."
    shown.type("kill -KILL %1; while [ \"$(jobs -s)\" ]; do sleep 0.01; done; echo kil''led\n")
    shown.read_until("killed")
    shown.type("exit 4\n")
    assert shown.wait(CALL_S) == 4


def test_control_z_stops_the_client_with_the_command(served: Served, tmp_path: Path) -> None:
    """The client runs in a user's shell, which sees its job stopped, and has it go on."""
    script = tmp_path / "script"
    argv = served.argv("sh", "-c", "echo begun; read line; echo got $line; exit 6")
    script.write_text(f"cd {shlex.quote(os.getcwd())}; exec {shlex.join(argv)}\n")
    shown = Screen(["/bin/bash", "--norc", "-i"])
    try:
        shown.type(f"PS1='> '; sh {script}\n")
        shown.read_until("begun\r\n")
        shown.type("\x1a")
        shown.read_until("Stopped")
        shown.type("fg; echo co''de $?\n")
        shown.type("more\n")
        shown.read_until("got more")
        shown.read_until("code 6")
    finally:
        os.kill(shown.pid, signal.SIGKILL)
        os.waitpid(shown.pid, 0)
        os.close(shown.fd)


def test_the_terminal_is_given_back_as_it_was(screen: Callable[..., Screen], served: Served) -> None:
    shown = screen("sh", "-c", "echo ready; sleep 1000")
    before = termios.tcgetattr(shown.fd)
    shown.read_until("ready")
    wait_for(lambda: not termios.tcgetattr(shown.fd)[3] & termios.ICANON, "keys go to the command")
    os.kill(shown.pid, signal.SIGTERM)
    wait_for(lambda: not lives(shown.pid), "the client ends")
    assert termios.tcgetattr(shown.fd) == before


def test_a_terminal_that_goes_away_takes_the_command_along(screen: Callable[..., Screen]) -> None:
    shown = screen("sh", "-c", "trap '' HUP; echo pid $$; sleep 1000; sleep 1000")
    pid = int(shown.read_until(r"pid (\d+)")[1])
    fd, shown.fd = shown.fd, os.open(os.devnull, os.O_RDONLY)
    os.close(fd)
    wait_for(lambda: not lives(pid), "the command has ended")


def test_output_beside_a_terminal_goes_where_it_was_sent(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "out"
    shown = Screen(
        ["/bin/sh", "-c", f'exec "$@" >{file}', "sh", *served.argv("sh", "-c", "test -t 0; echo $?")]
    )
    try:
        assert shown.wait(CALL_S) == 0
        assert file.read_text() == "0\n"
    finally:
        os.close(shown.fd)


def test_status_and_the_rest_are_answered_beside_all_of_them() -> None:
    assert commands.MOST <= rpc.server.MAX_CONNECTIONS // 2
