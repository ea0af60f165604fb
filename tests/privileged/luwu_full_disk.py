"""LuWu's optimizer node on a full disk: `python -m tests.privileged.luwu_full_disk FOLDER CASE`, in a mount
namespace of its own. Prints each error's message in a line, and OK at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.limits import CALL_S
from tests.unit.luwu_world import Reference, World, adamw, same, small
from workloads.luwu.errors import DiskError

STORE_BYTES = 900 << 10  # a store of `small` has 2 * 14 * 20,480 bytes, a lock, and records


def mounted(folder: Path, size: int) -> Path:
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, timeout=CALL_S
    )
    return folder


def fill(folder: Path) -> Path:
    """Write a file until no room is left."""
    file = folder / "other"
    with file.open("wb", buffering=0) as other:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    other.write(bytes(size))
            except OSError:
                continue
    return file


def refused(function: Callable[[], object]) -> None:
    try:
        function()
    except DiskError as problem:
        print(problem)
    else:
        sys.exit("not refused")


def too_small(folder: Path) -> None:
    """A store that does not fit leaves only its lock file."""
    disk = mounted(folder / "disk", 300 << 10)
    refused(lambda: World([disk]))
    assert [path.name for path in disk.iterdir()] == ["lock"], list(disk.iterdir())


def full_at_commit(folder: Path) -> None:
    """A store's room is reserved in advance; a commit that finds no room loses nothing."""
    disk = mounted(folder / "disk", STORE_BYTES)
    reference = Reference(small(), adamw, None, None)
    with World([disk]) as world:
        reference.iterate()
        world.node.iterate()
        other = fill(disk)
        refused(world.node.iterate)
    with World([disk], resume=True) as world:
        assert world.node.iteration == 1
        assert same(world.states(), reference.states())
        refused(world.node.iterate)
    other.unlink()
    with World([disk], resume=True) as world:
        reference.iterate()
        assert world.node.iterate() == 2
        assert same(world.states(), reference.states())


def full_at_a_write(folder: Path) -> None:
    """A file system that does not reserve room refuses a write of states."""
    os.posix_fallocate = lambda fd, start, length: os.ftruncate(fd, length)
    disk = mounted(folder / "disk", STORE_BYTES)
    reference = Reference(small(), adamw, None, None)
    World([disk]).__exit__()
    other = fill(disk)
    for _ in range(2):
        with World([disk], resume=True) as world:
            assert world.node.iteration == 0
            refused(world.node.iterate)
    other.unlink()
    with World([disk], resume=True) as world:
        reference.iterate()
        assert world.node.iterate() == 1
        assert same(world.states(), reference.states())


if __name__ == "__main__":
    {"too-small": too_small, "commit": full_at_commit, "write": full_at_a_write}[sys.argv[2]](
        Path(sys.argv[1])
    )
    print("OK")
