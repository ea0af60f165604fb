"""A job whose workers each compute for a second, and write to the folder given by the first argument which
share of a core they had, and their cgroups.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch.distributed as dist


def main() -> None:
    dist.init_process_group("inc")
    dist.barrier()
    began_s, used_s = time.monotonic(), time.process_time()
    while time.monotonic() < began_s + 1.0:
        pass
    share = (time.process_time() - used_s) / (time.monotonic() - began_s)
    report = {"share": share, "cgroups": Path("/proc/self/cgroup").read_text()}
    (Path(sys.argv[1]) / f"{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
