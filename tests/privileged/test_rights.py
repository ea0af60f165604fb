"""Rights, as an attacker would try them: who asks is what the kernel says, and nothing in a request adds to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import rpc

ASK = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
    "s.sendall(sys.argv[2].encode() + b'\\n'); print(s.makefile().readline())"
)
STRANGER = 4242  # who is in no user database


def ask(
    path: Path, request: dict[str, Any], uid: int = 0, gid: int = 0, groups: tuple[int, ...] = ()
) -> dict[str, Any]:
    """The answer to a request from a process of this user, with these groups and no others."""
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(path), json.dumps(request)],
        user=uid, group=gid, extra_groups=groups, cwd="/", capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return dict(json.loads(asked.stdout))


def who(request: dict[str, Any], peer: rpc.Peer, emit: rpc.Emit, disconnected: threading.Event) -> Any:
    return [peer.uid, peer.gid, sorted(peer.groups)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with rpc.serve(tmp_path / "s", who, STRANGER):
        yield tmp_path / "s"


@pytest.mark.parametrize("groups", [(), (5, 4244), tuple(range(1000, 3000))])
@pytest.mark.parametrize("uid", [0, STRANGER])
def test_groups_are_those_of_the_process_that_connected(served: Path, uid: int, groups: tuple[int, ...]) -> None:
    request = {"op": "who", "uid": 0, "gid": 42, "groups": [42]}
    assert ask(served, request, uid, 4243, groups)["result"] == [uid, 4243, list(groups)]


def test_another_user_is_refused_by_the_file_and_behind_it(served: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        ask(served, {"op": "who"}, STRANGER + 1)
    assert "PermissionError" in refused.value.stderr
    os.chmod(served, 0o666)
    assert ask(served, {"op": "who"}, STRANGER + 1) == {
        "ok": False, "exit_code": 2, "error": "only root and the user who started the testbed may ask",
    }  # fmt: skip
