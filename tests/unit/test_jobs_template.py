"""Workers as forks, on both ends of the socket, without torch, and without a user or a network to change
to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.client.environment import CHECKOUT
from testbed.emulation.template import Forked, Template
from testbed.errors import TestbedError
from tests.processes import spawn

# In place of workloads.template's main: a fork says how much it was given, and which secrets are anywhere in
# its memory.
PROGRAM = r"""
import contextlib, os, re, socket
from workloads import template

def secrets():
    for line in open("/proc/self/maps"):
        span, rights, *_ = line.split()
        if rights.startswith("rw"):
            began, ended = (int(end, 16) for end in span.split("-"))
            gone = contextlib.suppress(OSError, OverflowError, ValueError)
            with open("/proc/self/mem", "rb", 0) as memory, gone:
                memory.seek(began)
                yield from re.findall(b"secret of [a-z]+: [0-9]+", memory.read(ended - began))

fork = os.fork

def fork_or_not():
    if os.path.exists("no more processes"):
        raise BlockingIOError(11, os.strerror(11))
    return fork()

os.fork = fork_or_not
requests = socket.socket(fileno=os.dup(0))
requests.send(b'{"ready": true}')
mine = template.serve(requests)
if mine:
    worker, fds = mine
    known = b", ".join(sorted(set(secrets())))
    os.write(fds[1], b"%d given; %b" % (len(worker.env["GIVEN"]), known))
"""


@pytest.fixture
def template(tmp_path: Path) -> Iterator[Template]:
    def start(_argv: Sequence[str], **options: Any) -> Any:
        return spawn([sys.executable, "-c", PROGRAM], **{**options, "cwd": str(tmp_path)})

    made = Template(start)
    yield made
    made.close()


def said(template: Template, given: str, **more: str) -> tuple[Forked, str]:
    reader, writer = os.pipe()
    caller = {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "cwd": str(CHECKOUT)}
    namespace, env = Path("/proc/self/ns/net"), {"GIVEN": given, **more}
    held: list[int] = []
    options: dict[str, Any] = {"pass_fds": [], "hold": held.append, **caller}
    try:
        worker = template.popen(namespace, ["x.py"], env=env, stdout=writer, **options)
        assert held == [worker.pid]
    finally:
        os.close(writer)
        with os.fdopen(reader, "rb") as lines:
            words = lines.read().decode()
    return worker, words


def test_a_worker_knows_nothing_of_what_those_before_were_given(template: Template) -> None:
    worker, words = said(template, "", **{f"TOKEN_{at}": f"secret of alice: {at}" for at in range(30)})
    assert words.count("secret of alice") == 30
    assert worker.wait() == 0
    worker, words = said(template, "secret of bob: 1")
    assert words == "16 given; secret of bob: 1"
    assert worker.wait() == 0


def test_an_environment_of_any_size_is_one_and_harms_no_other_worker(template: Template) -> None:
    for size in (10, 900_000, 11):
        worker, words = said(template, "x" * size)
        assert words == f"{size} given; "
        assert worker.wait() == 0


def test_a_fork_that_the_kernel_refuses_is_that_workers_failure_alone(
    template: Template, tmp_path: Path
) -> None:
    before, _ = said(template, "a")
    (tmp_path / "no more processes").touch()
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(TestbedError, match=r"^fork a worker: Resource temporarily unavailable$"):
            said(template, "b")
    assert len(os.listdir("/proc/self/fd")) == open_files
    (tmp_path / "no more processes").unlink()
    after, words = said(template, "ccc")
    assert words == "3 given; "
    assert (before.wait(), after.wait()) == (0, 0), "both are children of one process"


def test_one_that_was_killed_is_started_again_and_says_nothing_of_forks_before(template: Template) -> None:
    before, _ = said(template, "a")
    origin = template._process
    assert origin is not None
    origin.kill()
    origin.wait(60)
    for _ in range(2):
        with pytest.raises(TestbedError, match="forks of: it was ended by SIGKILL;"):
            before.wait()
    assert template._process is None, "nobody starts one to ask it about another's forks"
    after, words = said(template, "bb")
    assert words == "2 given; "
    with pytest.raises(TestbedError, match="forks of: it was ended by SIGKILL;"):
        before.wait()
    assert after.wait() == 0
