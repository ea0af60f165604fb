"""A job whose workers write their identity and place, as JSON in the folder given by the first argument, and
then sum once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from pathlib import Path

import numpy as np


def descriptors() -> list[str]:
    """Return the files that this process has open beyond the standard three."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return links[3:]


def main() -> None:
    had_torch = "torch" in sys.modules  # before this script imports it
    import torch
    import torch.distributed as dist

    value = torch.ones(5_003)
    dist.init_process_group("inc")
    dist.all_reduce(value)
    assert (value == dist.get_world_size()).all()
    report = {
        "uid": os.getresuid(),
        "gid": os.getresgid(),
        "groups": os.getgroups(),
        "cwd": str(Path.cwd()),
        "argv": sys.argv,
        "path": sys.path[0],
        "name": __name__,
        "marked": os.environ.get("WHOAMI_MARK"),
        "sudo": [name for name in os.environ if name.startswith("SUDO_")],
        "drawn": [random.random(), float(np.random.random())],
        "fds": descriptors(),
        "namespace": os.readlink("/proc/self/ns/net"),
        "had_torch": had_torch,
        "parent": os.getppid(),
        "leads": os.getsid(0) == os.getpid(),
    }
    (Path(sys.argv[1]) / f"{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()
    if sys.argv[2:] == ["fail"] and report["leads"]:
        sys.exit(7)


if __name__ == "__main__":
    main()
