"""Names, the runtime folder and its lock. A lock is the kernel's, so a second process holds it where that
matters.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.client.caller import NOGROUP, Caller
from testbed.client.main_facts import MainState
from testbed.client.rpc import Peer
from testbed.client.runtime import HeldName, Runtime, check_name, dead, running, sweep
from testbed.errors import HostError, OwnerError, RequestError, TestbedError
from tests.limits import CALL_S

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import os, sys
from pathlib import Path
from testbed.client.caller import Caller
from testbed.client.main_facts import MainState
from testbed.client.runtime import HeldName, Runtime
with HeldName(Runtime.of("one", Path(sys.argv[1])), Caller.of(os.geteuid())) as name:
    name.write_main(MainState("one", 4242, "alice", "rack", "ready"))
    print("held", flush=True)
    sys.stdin.read()
"""
STATE = MainState("one", 1, "alice", "rack", "ready")


@pytest.fixture
def me() -> Caller:
    return Caller.of(os.geteuid())


def start_holder(root: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    return holder


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True))
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "A", "a/b", "..", "a" * 32, "a\n", "ü", "a b"])
def test_bad_names_say_what_is_accepted(name: str) -> None:
    with pytest.raises(RequestError, match="lower-case letters, digits and hyphens"):
        check_name(name)


def test_a_claim_makes_the_folder_and_removes_it(tmp_path: Path, me: Caller) -> None:
    runtime = Runtime.of("one", tmp_path / "optinc")
    with HeldName(runtime, me) as name:
        name.write_main(STATE)
        assert runtime.alive()
        assert running(tmp_path / "optinc") == ["one"]
        assert runtime.read_main() == STATE
        assert runtime.folder.stat().st_mode & 0o777 == 0o711
        assert runtime.main.stat().st_mode & 0o022 == 0
        assert runtime.main.stat().st_uid == os.geteuid(), "a command of root's sends signals by it"
        assert runtime.log.stat().st_mode & 0o027 == 0
    assert not runtime.alive()
    assert not runtime.folder.exists()


def test_two_names_at_once(tmp_path: Path, me: Caller) -> None:
    with HeldName(Runtime.of("one", tmp_path), me), HeldName(Runtime.of("two", tmp_path), me):
        assert running(tmp_path) == ["one", "two"]


def test_a_running_name_is_refused_with_its_pid(tmp_path: Path, me: Caller) -> None:
    holder = start_holder(tmp_path)
    with (
        pytest.raises(RequestError, match=r"'one' is running already \(pid 4242\)"),
        HeldName(Runtime.of("one", tmp_path), me),
    ):
        pass
    assert not sweep("one", tmp_path)
    holder.communicate("", timeout=CALL_S)
    assert holder.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_one_is_swept(tmp_path: Path, me: Caller) -> None:
    holder = start_holder(tmp_path)
    runtime = Runtime.of("one", tmp_path)
    (runtime.jobs / "3").mkdir()
    holder.send_signal(signal.SIGKILL)
    holder.wait(CALL_S)
    assert runtime.main.exists()
    assert not runtime.alive()
    with HeldName(runtime, me):
        assert not runtime.main.exists()
        assert list(runtime.jobs.iterdir()) == []


STRANGER = """
import fcntl, os, struct, sys
fds = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
for fd in fds:
    fcntl.flock(fd, fcntl.LOCK_EX)
print("locked", flush=True)
for fd in fds:
    if os.path.isfile(f"/proc/self/fd/{fd}"):
        for_reading = struct.pack("@hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, for_reading)
        fcntl.lockf(fd, fcntl.LOCK_SH)
print("locked for reading", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locked_by_a_stranger() -> Iterator[Callable[..., Callable[[], None]]]:
    """Have another process lock files and folders in all ways that one may who reads them, some as soon as
    their writer has gone: what is returned waits for that.
    """
    with contextlib.ExitStack() as stack:

        def lock(*paths: Path) -> Callable[[], None]:
            argv = [sys.executable, "-c", STRANGER, *map(str, paths)]
            stranger = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(stranger.communicate, "", timeout=CALL_S)

            def said(line: str) -> None:
                assert stranger.stdout
                assert stranger.stdout.readline() == line

            said("locked\n")
            return partial(said, "locked for reading\n")

        yield lock


def test_locks_of_a_stranger_keep_no_dead_testbed(
    tmp_path: Path, me: Caller, locked_by_a_stranger: Callable[..., Callable[[], None]]
) -> None:
    holder, runtime = start_holder(tmp_path), Runtime.of("one", tmp_path)
    assert runtime.lock.stat().st_mode & 0o077 == 0, "nobody but root opens it"
    assert runtime.owner.stat().st_mode & 0o777 == 0o444, "whoever opens it locks it for reading at most"
    has_all = locked_by_a_stranger(runtime.owner, runtime.folder, runtime.main)
    assert runtime.alive()
    holder.kill()
    holder.communicate(timeout=CALL_S)
    has_all()
    assert not runtime.alive()
    assert running(tmp_path) == []
    assert dead(tmp_path) == ["one"]
    with HeldName(runtime, me):
        assert runtime.alive()
        assert not sweep("one", tmp_path)
    holder = start_holder(tmp_path)
    has_all = locked_by_a_stranger(runtime.owner, runtime.folder)
    holder.kill()
    holder.communicate(timeout=CALL_S)
    has_all()
    assert sweep("one", tmp_path)
    assert not runtime.lock.exists()


def test_locks_of_a_stranger_keep_nothing_from_a_living_one(
    tmp_path: Path, me: Caller, locked_by_a_stranger: Callable[..., Callable[[], None]]
) -> None:
    runtime = Runtime.of("one", tmp_path)
    with HeldName(runtime, me):
        locked_by_a_stranger(runtime.owner, runtime.folder)
        assert runtime.alive()
    assert not runtime.folder.exists()
    assert not runtime.alive()


def test_sweep_removes_a_dead_folder_once(tmp_path: Path) -> None:
    runtime = Runtime.of("one", tmp_path)
    runtime.folder.mkdir()
    (runtime.folder / "daemon.sock").touch()
    assert sweep("one", tmp_path)
    assert not runtime.folder.exists()
    assert not sweep("one", tmp_path)


def test_a_failed_claim_of_the_same_process_leaves_the_first_alone(tmp_path: Path, me: Caller) -> None:
    runtime = Runtime.of("one", tmp_path)
    with HeldName(runtime, me):
        with pytest.raises(RequestError), HeldName(runtime, me):
            pass
        assert runtime.alive()
        assert runtime.log.is_dir()


def test_not_running_names_what_runs(tmp_path: Path, me: Caller) -> None:
    with pytest.raises(TestbedError, match="'two' is not running; none is"):
        Runtime.of("two", tmp_path).require_alive()
    with HeldName(Runtime.of("one", tmp_path), me), pytest.raises(TestbedError, match="running: one"):
        Runtime.of("two", tmp_path).require_alive()


def test_what_others_run_is_named(tmp_path: Path, me: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user is not told that nothing runs."""
    ordinary = Caller(54321, NOGROUP, (), "54321", "/")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "owner").write_text("54322\n")
    monkeypatch.setattr(os, "geteuid", lambda: ordinary.uid)
    with pytest.raises(HostError, match=r"'default' is not running; of other users there are: theirs; for"):
        Runtime.of("default", tmp_path).require_alive()
    with (
        HeldName(Runtime.of("one", tmp_path), ordinary),
        pytest.raises(TestbedError, match=r"running: one$"),
    ):
        Runtime.of("default", tmp_path).require_alive()


def test_main_json_half_read_is_empty(tmp_path: Path) -> None:
    runtime = Runtime.of("one", tmp_path)
    assert runtime.read_main() is None
    runtime.folder.mkdir()
    runtime.main.write_text("{")
    assert runtime.read_main() is None


def test_sudo_variables_count_for_root_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert Caller.of_this_process({"SUDO_UID": "54321", "SUDO_GID": "42"}) == Caller(
        54321, 65534, (), "54321", "/"
    )
    assert Caller.of_this_process({}).uid == 0
    for none in ("me", "-1", "4294967295"):
        with pytest.raises(RequestError, match="the number of a user is accepted"):
            Caller.of_this_process({"SUDO_UID": none})
    monkeypatch.setattr(os, "geteuid", lambda: 54323)
    assert Caller.of_this_process({"SUDO_UID": "0", "SUDO_GID": "0"}).uid == 54323


def test_who_asks_is_what_the_kernel_says() -> None:
    asks = Peer(4242, 4243, (4244,))
    for named in (None, 4242):
        caller = Caller.asking(asks, named)
        assert (caller.uid, caller.gid, caller.groups) == (4242, 4243, (4244,))
    for named in (0, 4241):
        with pytest.raises(
            RequestError, match=f"uid: {named}; user id 4242 asks, and only root may act as somebody"
        ):
            Caller.asking(asks, named)
    for none in (True, -1, 2**32 - 1, 1.5, "0", [0]):
        with pytest.raises(RequestError, match="uid: the number of a user is accepted"):
            Caller.asking(Peer(0, 0, ()), none)


def test_the_group_of_root_is_not_root() -> None:
    in_roots_group = Peer(4242, 0, (0, 4))
    for named in (0, 4241):
        with pytest.raises(RequestError, match=f"uid: {named}; user id 4242 asks, and only root may act"):
            Caller.asking(in_roots_group, named)
    alice = Caller(4242, 4242, (4242,), "alice", "/home/alice")
    with pytest.raises(OwnerError, match="as alice only, not as user id 4243"):
        Caller(4243, 0, (0,), "bob", "/home/bob").check_may_act(alice)
    with pytest.raises(OwnerError, match="as alice only, not as user id 4243"):
        Caller(4243, 4243, (0,), "bob", "/home/bob").check_may_act(replace(alice, gid=0, groups=(0,)))


def test_whom_root_names_has_the_groups_of_the_user_database() -> None:
    assert Caller.asking(Peer(0, 0, (0, 42)), 65534) == Caller.of(65534)
    assert Caller.asking(Peer(0, 0, (0, 42)), 54321) == Caller(54321, 65534, (), "54321", "/")
    assert Caller.asking(Peer(0, 0, (0, 42))).groups == (0, 42)


def test_a_users_testbed_acts_as_that_user_only() -> None:
    alice = Caller(4242, 4242, (4242,), "alice", "/home/alice")
    alice.check_may_act(alice)
    alice.check_may_act(Caller.of(0))
    for uid in (0, 4243):
        with pytest.raises(
            OwnerError, match="this testbed is alice's: it runs jobs and writes files as alice only"
        ):
            Caller.of(uid).check_may_act(alice)
