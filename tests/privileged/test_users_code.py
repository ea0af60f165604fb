"""The rights behind sudo of a user's classes, a topology's, a system's and a figure's: those of the user."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from reproductions import live
from testbed.topology import catalogue
from tests.privileged.commands import ROOT, WAIT_S, environment, fresh_name, open_folder
from tests.privileged.owned import GROUP, OWNER, owned
from tests.privileged.test_rights import KEYS

MINE = '''
import ctypes, json, os
from testbed.wire.transports import GLOO

def rights():
    status = dict(line.split(":\\t") for line in open("/proc/self/status"))
    sudo = [name for name in os.environ if name.startswith("SUDO_")]
    return [os.getresuid(), os.getresgid(), os.getgroups(), int(status["CapPrm"], 16), sudo]

SEEN = {"load": rights()}

def holds_key():
    request_key = {"x86_64": 249, "aarch64": 218}[os.uname().machine]
    return ctypes.CDLL(None).syscall(request_key, b"user", b"testbed-test", None, 0) > 0

class Who:
    """Says who it is."""
    name, on_testbed = "who", False
    def options(self, parser):
        SEEN["options"] = rights()
        parser.add_argument("--read")
    def check(self, options):
        SEEN["check"] = rights()
        if options.read:
            open(options.read)
    def run(self, options, out):
        SEEN["run"] = rights()
        (out / "kept").touch()
        return {"holds_key": holds_key()}
    def claims(self, report):
        SEEN["claims"] = rights()
        return []
    def show(self, report, console):
        SEEN["show"] = rights()
        console.print(json.dumps(SEEN), soft_wrap=True)
    def draw(self, report, path):
        path.write_text(json.dumps(rights()))

class Live(Who):
    name, on_testbed = "live", True

class Mine:
    figures = (Who(), Live())
    def lay_out(self, workers, site):
        raise ValueError(json.dumps(rights()))

def topology():
    raise ValueError(json.dumps(rights()))
'''
NOBODY = pwd.getpwnam("nobody")
STEPS = {"load", "options", "check", "run", "claims", "show"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """The owner's folder, with the file."""
    with open_folder() as made:
        (made / "mine.py").write_text(MINE)
        for path in (made, made / "mine.py"):
            os.chown(path, OWNER, GROUP)
        yield made


def behind_sudo(
    folder: Path, line: str, uid: int = OWNER, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a testbed command in the folder as root, behind this user's sudo."""
    verb, *words = shlex.split(line)
    return subprocess.run(
        [*before, sys.executable, "-m", f"testbed.{verb}", *words],
        cwd=folder,
        env=environment({"SUDO_UID": str(uid), "SUDO_GID": "0", "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def rights(uid: int) -> list[Any]:
    """Return the rights of a user of no database, or of nobody: no capability, nothing of sudo's."""
    groups = os.getgrouplist(NOBODY.pw_name, NOBODY.pw_gid) if uid == NOBODY.pw_uid else []
    return [[uid] * 3, [NOBODY.pw_gid] * 3, groups, 0, []]


@pytest.mark.parametrize("uid", [OWNER, NOBODY.pw_uid])
def test_a_figure_has_its_users_rights_from_loading_to_drawing(folder: Path, uid: int) -> None:
    os.chown(folder, uid, -1)
    ended = behind_sudo(folder, "reproduce mine.py:Mine who --out out/deep", uid)
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[0])
    assert seen == dict.fromkeys(STEPS, rights(uid))
    out = folder / "out" / "deep"
    assert json.loads((out / "who.png").read_text()) == rights(uid)
    assert {path.name for path in out.iterdir()} == {"kept", "who.json", "who.png"}
    assert {path.stat().st_uid for path in (out.parent, out, *out.iterdir())} == {uid}


@pytest.mark.parametrize("uid", [0, OWNER])
def test_a_figure_has_no_keys_of_roots_session(folder: Path, uid: int) -> None:
    """Root's own figure has them, or this test would see nothing."""
    planting = [sys.executable, "-c", KEYS, "plant"]
    ended = behind_sudo(folder, "reproduce mine.py:Mine who --out out", uid, planting)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((folder / "out" / "who.json").read_text())["holds_key"] is (uid == 0)


def test_a_figure_reads_nothing_of_roots(folder: Path) -> None:
    secret = folder / "secret"
    secret.touch(0o600)
    for line in (
        f"reproduce mine.py:Mine who --read {secret}",
        f"reproduce p4inc fig9 --trace {secret}",
    ):
        ended = behind_sudo(folder, line)
        assert ended.returncode == 2, ended.stderr
        assert "Permission denied" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_a_log_beside_a_report_is_appended_to_with_its_users_rights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the folder may put a link there to what is root's."""
    secret, log = folder / "secret", folder / "log"
    secret.touch(0o600)
    log.symlink_to(secret)
    monkeypatch.setenv("SUDO_UID", str(OWNER))
    testbed = live.TestbedOfFigures(fresh_name(), catalogue.ready("rack"), log)
    with pytest.raises(PermissionError):
        testbed.command("status")
    assert secret.read_text() == ""


@pytest.mark.needs("xdp", "ovs")
def test_a_figure_on_a_testbed_takes_one_that_is_up(folder: Path) -> None:
    ended = behind_sudo(folder, "reproduce mine.py:Mine live")
    assert ended.returncode == 3
    assert ended.stderr.startswith("testbed reproduce: mine.py:Mine live: needs a testbed, and is never run ")
    assert len(ended.stderr.splitlines()) == 1
    with owned():
        ended = behind_sudo(folder, "reproduce mine.py:Mine live")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[0]) == dict.fromkeys(STEPS, rights(OWNER))


@pytest.mark.needs("xdp", "ovs")
def test_a_system_lays_out_with_its_users_rights(folder: Path) -> None:
    with owned() as testbed:
        ended = behind_sudo(folder, f"run --name {testbed.name} --sync mine.py:Mine --place u1:2 mine.py")
    assert ended.returncode == 2
    raised = ended.stderr.removeprefix("testbed run: --sync mine.py:Mine: its lay_out raised ValueError: ")
    assert json.loads(raised) == rights(OWNER)


@pytest.mark.parametrize("line", [f"up --name {fresh_name()}", "demo --epochs 1"], ids=["up", "demo"])
def test_a_topology_is_described_with_its_users_rights(folder: Path, line: str) -> None:
    ended = behind_sudo(folder, f"{line} --config mine.py:topology")
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert json.dumps(rights(OWNER)) in ended.stderr
