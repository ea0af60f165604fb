"""A system of one's own: the commands of docs/your-own-system.md as they stand there, and the example whose
workers push signs.
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

from tests.privileged.commands import ROOT, Testbed, environment, open_folder, running

pytestmark = [pytest.mark.needs("xdp", "ovs")]

PAGE = ROOT / "docs" / "your-own-system.md"
_FILE = re.compile(r"^```python file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOBODY = 65534

SIGNS = """
import torch
import torch.distributed as dist

dist.init_process_group("inc")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
votes = torch.randn(size, 10_007).sign()
mine = votes[rank] * (rank + 0.5)
dist.all_reduce(mine)
assert torch.equal(mine, votes.sum(0).sign()), rank
if rank == 0:
    print(f"the majority of {size} workers is right")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as testbed:
        yield testbed


@pytest.fixture
def folder() -> Iterator[Path]:
    """An ordinary user's, with the page's files."""
    files = dict(_FILE.findall(PAGE.read_text()))
    assert list(files) == ["chain.py", "sums.py"]
    with open_folder() as made:
        for name, text in files.items():
            (made / name).write_text(text)
        for path in [made, *made.iterdir()]:
            os.chown(path, NOBODY, NOBODY)
        yield made


def run(testbed: Testbed, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`testbed run` as that user."""
    as_nobody = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    return subprocess.run(
        [sys.executable, "-m", "testbed.run", "--name", testbed.name, "--timeout", "120", *words],
        cwd=folder,
        env=environment({**as_nobody, "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_page_s_commands_do_what_it_says(testbed: Testbed, folder: Path) -> None:
    (commands,) = _COMMAND.findall(PAGE.read_text())
    for line in commands.strip().splitlines():
        program, verb, *words = shlex.split(line)
        assert (program, verb) == ("testbed", "run")
        ended = run(testbed, folder, *words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "sums of 3 workers are right" in ended.stdout
    result = json.loads((folder / "chain.json").read_text())
    assert (result["sync"], result["failure"]) == ("chain.py:Chain", None)
    up = {link["name"]: link["bytes_up"] for link in result["links"]}
    least, most = sorted(up[host] for host in ("u1h1", "u1h2", "u2h1"))[::2]
    assert most < 1.5 * least, "each link of the chain carries one vector up"
    line = result["verdict"]["line"]
    assert re.search(r"this job sent [0-9.]+ kB over its fullest link", line), "little, but not nothing"


def test_a_forest_that_leaves_a_worker_out_is_told_in_the_line_that_the_page_shows(
    testbed: Testbed, folder: Path
) -> None:
    chain = folder / "chain.py"
    chain.write_text(chain.read_text().replace("range(len(workers))", "range(len(workers) - 1)"))
    ended = run(testbed, folder, "--sync", "chain.py:Chain", "--place", "u1:2,u2:1", "sums.py")
    assert ended.returncode == 2
    shown = "--sync chain.py:Chain: tree 0: worker 2 contributes 0 times, not once"
    assert ended.stderr.splitlines() == [f"testbed run: {shown}"]
    assert shown in " ".join(PAGE.read_text().split())


def test_workers_push_signs_and_take_the_sign_of_the_sum(testbed: Testbed, folder: Path) -> None:
    (folder / "signs.py").write_text(SIGNS)
    system = f"{ROOT / 'docs' / 'examples' / 'majority_vote.py'}:MajorityVote"
    ended = run(testbed, folder, "--sync", system, "--place", "u1:3,u2:2", "signs.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the majority of 5 workers is right" in ended.stdout
