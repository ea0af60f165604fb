"""Remove a testbed's cgroups after it has ended, in whatever way: `python -I -S keeper.py PIPE LOCK FOLDER`,
and further pairs of lock and folder.

Cgroups outlive namespaces and their makers. So this process stays outside the testbed's namespaces and waits
for the end of PIPE, whose other end only the main process holds: the kernel closes it, however that process
dies. LOCK is held as long as the cgroups have an owner: a free lock means a dead testbed's, which `sweep`
(lifetime.py) removes. Standard library only, and run by path, so that it stays small.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

REMOVE_S = 30.0
_LOOK_S = 0.01


def remove(folder: Path, within_s: float) -> bool:
    """Remove a cgroup and those in it, once the kernel has ended their processes; this kills none. Return
    whether they are gone.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            for below, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(below)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        else:
            return True


def main(pipe: int, folders: Sequence[Path]) -> int:
    while os.read(pipe, 1):  # nothing is ever written
        pass
    return 0 if all([remove(folder, REMOVE_S) for folder in folders]) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), [Path(folder) for folder in sys.argv[3::2]]))
