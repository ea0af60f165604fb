"""A system of one's own: the commands of docs/your-own-system.md as they stand there, the example whose
workers push signs, and the one with a data-plane program of its own.
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

from tests.privileged.commands import ROOT, Testbed, command, environment, open_folder, running

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

LARGEST = """
import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("inc")
rank, size = dist.get_rank(), dist.get_world_size()
for length in (11, 5_003, 30_011):
    chance = np.random.default_rng((7, length))
    every = torch.from_numpy(chance.standard_normal((size, length)).astype(np.float32))
    every *= 10.0 ** (6 * torch.arange(size)[:, None] - 6)
    every[:, 3], every[0, 5], every[:, 7] = -0.0, torch.inf, -torch.inf
    mine = every[rank].clone()
    dist.all_reduce(mine)
    assert torch.equal(mine, every.amax(0)), (rank, length)
if rank == 0:
    print(f"the largest of {size} workers is right")
dist.destroy_process_group()
"""
EXAMPLE = ROOT / "docs" / "examples" / "largest.py"


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
    ended = run(testbed, folder, "--preload", "--sync", system, "--place", "u1:3,u2:2", "signs.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the majority of 5 workers is right" in ended.stdout


def test_a_program_of_a_configuration_works_on_its_packets(folder: Path) -> None:
    """It is right within a rack and across two, with losses on both sides of both switches; and the core's is
    beside it.
    """
    (folder / "largest.py").write_text(LARGEST)
    config = folder / "own.yaml"
    config.write_text(f"units: [{{hosts: 2}}, {{hosts: 2}}]\nprograms: [{EXAMPLE}:Program]\n")
    with running(str(config)) as testbed:
        for links in ("u1h1", "u2h1", "u1o1"):
            fault = command("testbed.fault", "set", links, "--loss", "2%", "--name", testbed.name)
            assert fault.returncode == 0, fault.stderr
        for place in ("u1:2", "u1:2,u2:1"):
            words = ("--preload", "--sync", f"{EXAMPLE}:Largest", "--place", place, "largest.py")
            ended = run(testbed, folder, *words)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            assert "workers is right" in ended.stdout
        words = ("--preload", "--sync", "switches", "--place", "u1:2,u2:1", "sums.py")
        ended = run(testbed, folder, *words)
        assert "sums of 3 workers are right" in ended.stdout, ended.stdout + ended.stderr


def test_a_job_whose_program_no_configuration_names_is_refused(testbed: Testbed, folder: Path) -> None:
    ended = run(testbed, folder, "--sync", f"{EXAMPLE}:Largest", "--place", "u1:2", "sums.py")
    assert ended.returncode == 2
    shown = "u1 has engine: xdp, which has no program 'largest'; accepted are sum, blocks, owned"
    assert ended.stderr.splitlines() == [f"testbed run: --sync {EXAMPLE}:Largest: {shown}"]


def test_a_program_that_does_not_compile_ends_up_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(EXAMPLE.read_text())
    bad, config = tmp_path / "bad.h", tmp_path / "own.yaml"
    good = EXAMPLE.with_suffix(".h").read_text()
    config.write_text("units: [{hosts: 2}]\nprograms: [bad.py:Program]\n")
    for old, new, why in (
        ("larger_pair(s", "largr_pair(s", "the verifier: "),
        ("	struct slot *s;", "	struct slot *s", "expected ';'"),
    ):
        bad.write_text(good.replace(old, new))
        ended = command("testbed.up", "--config", str(config), "--name", "bad-program", "--detach")
        if ended.returncode == 0:
            command("testbed.down", "--name", "bad-program")
        assert ended.returncode == 2, ended.stdout + ended.stderr
        (line,) = (line for line in ended.stderr.splitlines() if not line.startswith("testbed up: trying"))
        assert line.startswith(f"testbed up: programs: {bad}: "), line
        assert why in line, line


def test_a_host_runs_no_program_of_a_configuration(folder: Path) -> None:
    config = folder / "own.yaml"
    config.write_text(f"units: [{{hosts: 2}}]\nprograms: [{EXAMPLE}:Program]\n")
    chain = folder / "chain.py"
    chain.write_text(chain.read_text().replace("programs = {}", 'programs = {"xdp": "largest"}'))
    with running(str(config)) as testbed:
        ended = run(testbed, folder, "--sync", "chain.py:Chain", "--place", "u1:2", "sums.py")
        assert ended.returncode == 2
        assert "is a host, which sums by 'sum' alone, and not by 'largest'" in ended.stderr
        words = ("--sync", f"{EXAMPLE}:Largest", "--recovery", "integrity", "--place", "u1:2", "sums.py")
        ended = run(testbed, folder, *words)
        assert ended.returncode == 2
        assert (
            "--recovery integrity: program 'largest' answers no questions; window is accepted" in ended.stderr
        )
