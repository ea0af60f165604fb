"""LuWu's optimizer node trains a model of 179 MB in a cgroup of 64 MiB, a training script beside it, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import lacking
from tests.limits import CALL_S

CHECKOUT = Path(__file__).resolve().parents[2]
TOP = Path("/sys/fs/cgroup")
LIMIT_BYTES = 64 << 20
# a fixed threshold, glibc's own first: else it grows by what was freed, tensors then come from a heap whose
# gaps stay the process's, and the most that it takes is anything from 48 to 82 MB, where it holds 26
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)}


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Path]:
    """The file that a process joins a limited cgroup by, of version 1 or 2."""
    if _is_in_memory(tmp_path):
        lacking("memory", "files lie in memory here, and count as the node's own")
    old = (TOP / "memory" / "memory.limit_in_bytes").exists()
    folder = (TOP / "memory" if old else TOP) / f"optinc-test-{os.getpid()}"
    try:
        folder.mkdir()
        limit = folder / ("memory.limit_in_bytes" if old else "memory.max")
        limit.write_text(str(LIMIT_BYTES))
    except OSError as problem:
        if folder.exists():
            folder.rmdir()
        lacking("memory", f"the memory controller of cgroups cannot be written: {problem.strerror}")
    try:
        assert int(limit.read_text()) == LIMIT_BYTES
        yield folder / "cgroup.procs"
    finally:
        until = time.monotonic() + 30
        while (folder / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.01)
        folder.rmdir()


def _is_in_memory(folder: Path) -> bool:
    """Return whether a folder is on a tmpfs."""
    mounts = {each.mountpoint: each.fstype for each in psutil.disk_partitions(all=True)}
    places = (mounts[str(each)] for each in (folder, *folder.parents) if str(each) in mounts)
    return next(places, "") == "tmpfs"


@pytest.mark.parametrize("who", ["node", "script"])
def test_memory_is_bounded_well_below_the_model(members: Path, tmp_path: Path, who: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.privileged.luwu_limited", str(members), str(tmp_path), who],
        capture_output=True,
        text=True,
        timeout=CALL_S,
        cwd=CHECKOUT,
        env={**os.environ, **GIVEN_BACK},
    )
    assert done.stdout.splitlines() == ["trained 179200000 bytes"], done.stderr[-2000:]
    assert done.returncode == -signal.SIGKILL  # the limit holds
