"""A topology of one's own: the commands of docs/mininet.md as they stand there, by an ordinary user behind
sudo, and whose process calls the class.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.emulation.user_topo import topology_of
from testbed.jobs.environment import worker_environment
from tests.privileged.commands import ROOT, environment, fresh_name, open_folder
from tests.privileged.owned import GROUP, OTHER_GROUP, OWNER

PAGE = ROOT / "docs" / "mininet.md"
LIMIT_S = 200
_FILE = re.compile(r"^```python file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

WHO = """
import os

def who():
    status = dict(line.split(":\\t") for line in open("/proc/self/status"))
    users = [*set(os.getresuid()), *set(os.getresgid()), *os.getgroups()]
    names = [name for name in os.environ if name.startswith("SUDO_")]
    seen = [*users, int(status["CapEff"], 16), os.getsid(0) == os.getpid(), names, os.environ["HOME"]]
    return {"name": repr(seen), "units": [{"hosts": 1}]}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with the page's files, which any user may read."""
    with open_folder() as made:
        for name, text in [*_FILE.findall(PAGE.read_text()), ("who.py", WHO)]:
            (made / name).write_text(text)
            (made / name).chmod(0o644)
        yield made


def typed(folder: Path, words: list[str], name: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the page: by sudo what begins so, and the rest as the user."""
    sudo = words[0] == "sudo"
    program, verb, *rest = words[1:] if sudo else words
    assert Path(program).name == "testbed"
    behind = {"SUDO_UID": str(OWNER), "SUDO_GID": str(GROUP)} if sudo else {}
    identity = {} if sudo else {"user": OWNER, "group": GROUP, "extra_groups": []}
    return subprocess.run(
        [sys.executable, "-m", f"testbed.{verb}", "--name", name, *rest],
        cwd=folder,
        env=environment({**behind, "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        **identity,
    )


@pytest.mark.needs("xdp", "ovs")
@pytest.mark.usefixtures("nothing_left")
def test_the_page_s_commands_do_what_it_says(folder: Path) -> None:
    (commands,) = _COMMANDS.findall(PAGE.read_text())
    name = fresh_name()
    up, shell, down = [shlex.split(line) for line in commands.strip().splitlines()]
    try:
        ended = typed(folder, up, name)
        assert ended.returncode == 0, ended.stderr
        topology = json.loads(Runtime.of(name).topology.read_text())
        assert (topology["name"], [unit["hosts"] for unit in topology["units"]]) == ("Pair", [2, 2])
        ended = typed(folder, shell, name)
        assert ended.returncode == 0, ended.stderr
        for line in ("oxc u1 u1h1 u1h2 u2 u2h1 u2h2", "u1-o2<->x-u1o2 (OK OK) ", "1 received"):
            assert line in ended.stdout
    finally:
        ended = typed(folder, down, name)
    assert ended.returncode == 0, ended.stderr
    assert not Runtime.of(name).alive()


def test_the_class_is_called_by_the_user_with_no_right_of_root_s(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SUDO_UID", str(OWNER))
    caller = Caller.with_groups(OWNER, GROUP, (OTHER_GROUP,))
    topology = topology_of("who.py:who", caller, worker_environment(os.environ, caller))
    assert topology.name == repr([OWNER, GROUP, OTHER_GROUP, 0, True, [], caller.home])


def test_what_is_wrong_with_a_class_is_one_line(folder: Path) -> None:
    (folder / "wrong.py").write_text(_FILE.findall(PAGE.read_text())[0][1].replace("bw=100", "delay=1"))
    (folder / "wrong.py").chmod(0o600)  # which is root's to read
    for config, says in (
        ("wrong.py:Pair", "it raised PermissionError: [Errno 13] Permission denied: "),
        ("pair.py:Pairs", "it raised AttributeError: module 'users_pair' has no attribute 'Pairs'"),
    ):
        ended = typed(folder, ["sudo", "testbed", "up", "--config", config], fresh_name())
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"testbed up: --config {config}: {says}")
        assert len(ended.stderr.splitlines()) == 1
