"""Rights, as an attacker would try them: who may ask for what, and as whom it is done. docs/security.md is
what this holds to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.emulation import namespaces
from tests.privileged.commands import WAIT_S, Testbed, command, open_folder, running

# Users and groups of no database. SECRET is a group that nobody here has.
OWNER, OWNERS_GROUP, OTHER_GROUP, SECRET, NOGROUP = 54321, 54322, 54323, 54399, 65534
STRANGER = 54331
ASK = """
import contextlib, socket, sys
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect(sys.argv[1])
    with contextlib.suppress(BrokenPipeError):  # who is refused is so before a word
        asking.sendall(sys.stdin.buffer.read() + b"\\n")
    print(asking.makefile().read())
"""
PROBE = """
import json, os, sys

def readable(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return error.strerror

print(json.dumps({
    "uid": os.getresuid(), "gid": os.getresgid(), "groups": sorted(os.getgroups()), "cwd": os.getcwd(),
    **{name: readable(path) for name, path in json.loads(sys.argv[1]).items()},
}), flush=True)
"""
KEYS = """
import ctypes, os, subprocess, sys
add_key, request_key, keyctl = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
call = ctypes.CDLL(None).syscall
if sys.argv[1] == "plant":
    assert call(keyctl, 1, None) > 0
    assert call(add_key, b"user", b"testbed-test", b"hidden", 6, -3) > 0
    sys.exit(subprocess.run(sys.argv[2:]).returncode)
os.setresuid(65534, 65534, 65534)
print(call(request_key, b"user", b"testbed-test", None, 0) > 0)
"""
STATS = """
import json, os, sys
stats = json.loads(os.environ["TESTBED_JOB"])["stats"]
if sys.argv[1] == "pipe":
    os.mkfifo(stats)
elif sys.argv[1] == "link":
    os.symlink(sys.argv[2], stats)
elif sys.argv[1] == "deep":
    with open(stats, "w") as file:
        file.write("[" * 100_000)
else:
    os.mkdir(stats)
"""


@dataclass(frozen=True, slots=True)
class Asker:
    """A process that asks."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


ASKERS = {
    "owner": Asker(OWNER, OWNERS_GROUP, (OTHER_GROUP,)),
    "stranger": Asker(STRANGER, STRANGER, (OTHER_GROUP,)),
    "root": Asker(0, 0, (SECRET,)),
}


def ask(path: Path, request: dict[str, Any], asker: Asker) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer to a request from a process of this user, with these groups and no others, and the events
    before it.
    """
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(path)],
        user=asker.uid,
        group=asker.gid,
        extra_groups=asker.groups,
        cwd="/",
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    if asked.returncode:
        return {"ok": False, "error": asked.stderr.strip().splitlines()[-1]}, []
    *events, answer = [json.loads(line) for line in asked.stdout.splitlines() if line]
    return answer, [event["event"] for event in events]


# ------------------------------------------------------------------ who asks


def who(request: dict[str, Any], peer: rpc.Peer, emit: rpc.Emit, disconnected: threading.Event) -> Any:
    return [peer.uid, peer.gid, sorted(peer.groups)]


@pytest.fixture
def served() -> Iterator[Path]:
    with open_folder() as folder, rpc.serve(folder / "s", who, OWNER):
        yield folder / "s"


@pytest.mark.parametrize("groups", [(), (5, 54344), tuple(range(1000, 3000))])
@pytest.mark.parametrize("uid", [0, OWNER])
def test_groups_are_those_of_the_process_that_connected(
    served: Path, uid: int, groups: tuple[int, ...]
) -> None:
    request = {"op": "who", "uid": 0, "gid": 42, "groups": [42]}
    assert ask(served, request, Asker(uid, 54343, groups))[0]["result"] == [uid, 54343, list(groups)]


def test_another_user_is_refused_by_the_file_and_behind_it(served: Path) -> None:
    assert "PermissionError" in ask(served, {"op": "who"}, ASKERS["stranger"])[0]["error"]
    os.chmod(served, 0o666)
    for asker in (ASKERS["stranger"], Asker(STRANGER, 0, (0,))):
        answer, _ = ask(served, {"op": "who"}, asker)
        assert answer == {
            "ok": False,
            "exit_code": 3,
            "error": "only root and the user who started the testbed may ask",
        }


# ------------------------------------------------------------------ what they may


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    """The owner's."""
    with running("rack", {"SUDO_UID": str(OWNER), "SUDO_GID": str(SECRET)}) as made:
        yield made


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with scripts, the owner's `out`, and files that are some group's or root's."""
    with open_folder() as path:
        _fill(path)
        yield path


def _fill(path: Path) -> None:
    (path / "probe.py").write_text(PROBE)
    (path / "stats.py").write_text(STATS)
    for name, uid, gid, mode in (
        ("out", OWNER, OWNERS_GROUP, 0o700),
        ("shared", 0, OTHER_GROUP, 0o770),  # the owner's by its supplementary group alone
        ("roots", 0, 0, 0o700),
        ("secrets", 0, SECRET, 0o770),
    ):
        made = path / name
        made.mkdir()
        (made / "file").write_text(f"{name} file")
        (made / "file").chmod(0o640)
        for each in (made, made / "file"):
            os.chown(each, uid, gid)
        made.chmod(mode)
    os.mkfifo(path / "out" / "worker-0.log", 0o666)
    os.chown(path / "out" / "worker-0.log", OWNER, OWNERS_GROUP)


def run(folder: Path, **changes: Any) -> dict[str, Any]:
    """A job that says who it is, and which of the folders' files it can read."""
    files = {name: str(folder / name / "file") for name in ("out", "shared", "roots", "secrets")}
    base = {
        "script": str(folder / "probe.py"),
        "arguments": [json.dumps(files)],
        "sync": "ring",
        "place": "u1:1",
    }
    return {"op": "run", **base, "cwd": "/", "environ": {"PATH": "/usr/bin:/bin"}, **changes}


def capture(**changes: Any) -> dict[str, Any]:
    return {"op": "capture", "link": "u1h1", "count": 1, "seconds": 0.05, **changes}


def exec_(**changes: Any) -> dict[str, Any]:
    return {"op": "exec", "host": "u1h1", "argv": ["true"], "cwd": "/", "environ": {}, **changes}


PASSED = "it is done"
BY_FILE = "PermissionError: [Errno 13] Permission denied"
NOT_AS = "and only root may act as somebody else"
NOT_HERE = f"this testbed is {OWNER}'s: it runs jobs and writes files as {OWNER} only, not as user id"

Row = tuple[
    Callable[[Path], dict[str, Any]], str, str
]  # the request; what becomes of it for the owner, and for root

ROWS: dict[str, Row] = {
    "status": (lambda f: {"op": "status"}, PASSED, PASSED),
    "the journal": (lambda f: {"op": "journal"}, PASSED, PASSED),
    "faults": (lambda f: {"op": "fault", "action": "list"}, PASSED, PASSED),
    "links": (lambda f: {"op": "link", "action": "reset", "links": ["u1h1"]}, PASSED, PASSED),
    "its circuits": (lambda f: {"op": "circuits", "action": "reset"}, PASSED, PASSED),
    "run": (run, PASSED, f"{NOT_HERE} 0"),
    "run as root": (lambda f: run(f, uid=0), NOT_AS, f"{NOT_HERE} 0"),
    "run as a stranger": (lambda f: run(f, uid=STRANGER), NOT_AS, f"{NOT_HERE} {STRANGER}"),
    "run as the owner": (lambda f: run(f, uid=OWNER), PASSED, PASSED),
    "run as minus one": (lambda f: run(f, uid=2**32 - 1), "the number of a user", "the number of a user"),
    "submit as root": (lambda f: {"op": "submit", "submission": {}, "uid": 0}, NOT_AS, f"{NOT_HERE} 0"),
    "capture as root": (lambda f: capture(output="/tmp/x", uid=0), NOT_AS, f"{NOT_HERE} 0"),
    "capture": (lambda f: capture(output=str(f / "out" / "a.pcap"), uid=OWNER), PASSED, PASSED),
    "capture to root's": (
        lambda f: capture(output=str(f / "roots" / "file"), uid=OWNER),
        "Permission denied", "Permission denied",
    ),
    "capture by a group": (
        lambda f: capture(output=str(f / "shared" / "a.pcap"), uid=OWNER), PASSED, "Permission denied",
    ),
    "capture to a pipe": (
        lambda f: capture(output=str(f / "out" / "worker-0.log"), uid=OWNER),
        "it is no ordinary file", "it is no ordinary file",
    ),
    "logs in a pipe": (
        lambda f: run(f, logs=str(f / "out"), uid=OWNER), "it is no ordinary file", "it is no ordinary file",
    ),
    "logs by a group": (lambda f: run(f, logs=str(f / "shared"), uid=OWNER), PASSED, "Permission denied"),
    "logs at root's": (
        lambda f: run(f, logs=str(f / "roots"), uid=OWNER), "Permission denied", "Permission denied",
    ),
    "cancel as root": (lambda f: {"op": "cancel", "jobs": [], "uid": 0}, NOT_AS, PASSED),
    "cancel": (lambda f: {"op": "cancel", "jobs": []}, PASSED, PASSED),
    "stop": (lambda f: {"op": "stop", "job": 1}, "not a running job", "not a running job"),
    "exec": (lambda f: exec_(), PASSED, PASSED),
    "exec as root": (lambda f: exec_(uid=0), NOT_AS, PASSED),
    "exec as a stranger": (lambda f: exec_(uid=STRANGER), NOT_AS, f"{NOT_HERE} {STRANGER}"),
    "exec as the owner": (lambda f: exec_(uid=OWNER), PASSED, PASSED),
    "exec nowhere": (lambda f: exec_(host="u9h1"), "there are u1h1, u1h2,", "there are u1h1, u1h2,"),
    "nothing": (lambda f: {"op": "become"}, "accepted are", "accepted are"),
}  # fmt: skip


@pytest.mark.needs("xdp", "ovs")
@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("name", ROWS)
def test_the_table_of_requests(testbed: Testbed, folder: Path, name: str, asker: str) -> None:
    request, owners, roots = ROWS[name]
    answer, _ = ask(Runtime.of(testbed.name).socket, request(folder), ASKERS[asker])
    expected = {"owner": owners, "root": roots, "stranger": BY_FILE}[asker]
    if expected == PASSED:
        assert answer["ok"], answer
        assert (
            answer["result"] is None
            or "failure" not in answer["result"]
            or answer["result"]["failure"] is None
        )
    else:
        assert not answer["ok"]
        assert expected in answer["error"]
        assert "\n" not in answer["error"]


@pytest.mark.needs("xdp", "ovs")
@pytest.mark.parametrize(("asker", "allowed"), [("owner", True), ("stranger", False), ("root", True)])
@pytest.mark.parametrize("request_", [{"op": "circuits"}, {"op": "apply", "circuits": []}, {"op": "history"}])
def test_the_controller_s_socket(
    testbed: Testbed, request_: dict[str, Any], asker: str, allowed: bool
) -> None:
    answer, _ = ask(Runtime.of(testbed.name).controller_socket, request_, ASKERS[asker])
    assert answer["ok"] is allowed, answer


@pytest.mark.needs("xdp", "ovs")
def test_what_is_in_its_folder_is_roots_but_for_the_sockets(testbed: Testbed) -> None:
    """Root's commands act on what they read there."""
    runtime = Runtime.of(testbed.name)
    owned = {path.name for path in runtime.folder.iterdir() if path.stat().st_uid != 0}
    assert owned == {"daemon.sock", "controller.sock"}
    assert not [
        path for path in runtime.folder.iterdir() if path.stat().st_mode & 0o022 and path.name not in owned
    ]


def seen_by_job(testbed: Testbed, asker: Asker, request: dict[str, Any]) -> dict[str, Any]:
    answer, events = ask(Runtime.of(testbed.name).socket, request, asker)
    assert answer["ok"], answer
    assert answer["result"]["failure"] is None, answer["result"]["failure"]
    return dict(json.loads(next(event["output"] for event in events if "output" in event)))


@pytest.mark.needs("xdp", "ovs")
def test_a_job_has_the_rights_of_who_asked_and_no_more(testbed: Testbed, folder: Path) -> None:
    request = run(folder, uid=OWNER, gid=SECRET, groups=[SECRET], cwd=str(folder / "shared"))
    assert seen_by_job(testbed, ASKERS["owner"], request) == {
        "uid": [OWNER] * 3,
        "gid": [OWNERS_GROUP] * 3,
        "groups": [OTHER_GROUP],
        "cwd": str(folder / "shared"),
        "out": "out file",
        "shared": "shared file",
        "roots": "Permission denied",
        "secrets": "Permission denied",
    }


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("inside", [False, True])
def test_the_keys_of_roots_session_stay_outside(inside: bool) -> None:
    """They are seen by another user where no testbed is between, or this test would see nothing."""
    look = [sys.executable, "-c", KEYS, "look"]
    argv = [sys.executable, "-c", KEYS, "plant", *(namespaces.command(look, "keys-test") if inside else look)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.stdout == f"{not inside}\n", done.stderr


@pytest.mark.needs("xdp", "ovs")
def test_behind_sudo_it_has_the_groups_of_the_user_database(testbed: Testbed, folder: Path) -> None:
    request = run(folder, uid=OWNER, gid=SECRET, groups=[SECRET])
    assert seen_by_job(testbed, ASKERS["root"], request) == {
        "uid": [OWNER] * 3, "gid": [NOGROUP] * 3, "groups": [], "cwd": "/",
        "out": "out file", **dict.fromkeys(("shared", "roots", "secrets"), "Permission denied"),
    }  # fmt: skip


@pytest.mark.needs("xdp", "ovs")
@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize(
    ("where", "reason"), [("roots", "Permission denied"), ("gone", "No such file or directory")]
)
def test_a_working_folder_is_entered_as_the_user(
    testbed: Testbed, folder: Path, where: str, reason: str, preload: bool
) -> None:
    request = run(folder, cwd=str(folder / where), preload=preload)
    answer, events = ask(Runtime.of(testbed.name).socket, request, ASKERS["owner"])
    assert answer["ok"], answer
    assert answer["result"]["failure"] == f"start worker 0 on u1h1: enter {folder / where}: {reason}"
    assert not [event for event in events if "output" in event]


@pytest.mark.needs("xdp", "ovs")
@pytest.mark.parametrize(("asker", "uid"), [("owner", None), ("root", OWNER)])
def test_a_command_enters_it_as_the_user_too(
    testbed: Testbed, folder: Path, asker: str, uid: int | None
) -> None:
    request = exec_(cwd=str(folder / "roots"), uid=uid)
    answer, _ = ask(Runtime.of(testbed.name).socket, request, ASKERS[asker])
    assert answer["result"] == {
        "exit_code": 126,
        "failure": f"enter {folder / 'roots'}: Permission denied",
    }


@pytest.mark.needs("xdp", "ovs")
def test_a_policy_enters_it_as_the_user_too(testbed: Testbed, folder: Path) -> None:
    job = {"script": str(folder / "probe.py"), "iterations": 1, "megabytes": 1.0, "workers": 1}
    request = {"op": "submit", "submission": {"jobs": [job]}, "cwd": str(folder / "roots"), "environ": {}}
    answer, _ = ask(Runtime.of(testbed.name).socket, request, ASKERS["owner"])
    assert answer["error"] == f"start policy inc-tw: enter {folder / 'roots'}: Permission denied"


@pytest.mark.needs("xdp", "ovs")
@pytest.mark.parametrize("kind", ["pipe", "link", "deep", "folder"])
def test_statistics_are_read_as_the_user_and_not_waited_for(
    testbed: Testbed, folder: Path, kind: str
) -> None:
    (folder / "roots" / "file").write_text('{"root": "only"}')
    request = run(folder, script=str(folder / "stats.py"), arguments=[kind, str(folder / "roots" / "file")])
    began = time.monotonic()
    answer, _ = ask(Runtime.of(testbed.name).socket, request, ASKERS["owner"])
    assert answer["ok"], answer
    assert (answer["result"]["failure"], answer["result"]["workers"][0]["stats"]) == (None, None)
    assert time.monotonic() - began < WAIT_S / 2
    status, _ = ask(Runtime.of(testbed.name).socket, {"op": "status"}, ASKERS["owner"])
    assert status["result"]["jobs"] == []


@pytest.mark.needs("xdp", "ovs")
def test_files_of_commands_behind_sudo_are_opened_as_the_user(testbed: Testbed, folder: Path) -> None:
    for argv in (
        ["testbed.up", "--name", "never-up", "--config", str(folder / "roots" / "file")],
        ["testbed.submit", "--name", testbed.name, str(folder / "roots" / "file")],
        ["testbed.run", "--name", testbed.name, str(folder / "roots" / "file")],
    ):
        done = command(*argv, env={"SUDO_UID": str(OWNER)})
        assert done.returncode == 2, done.stderr
        assert "Permission denied" in done.stderr
