"""Sum a vector of the given megabytes the given number of times, without computing. Prints how long it waited
for its process group.

With a third argument it then waits until a file of that name exists.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    megabytes, times = float(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    began = time.perf_counter()
    dist.init_process_group("inc")
    print(f"group: {time.perf_counter() - began:.3f} s", flush=True)
    world = dist.get_world_size()
    value = torch.empty(round(megabytes * 1e6 / 4))
    for turn in range(times):
        value.fill_(1.0)
        dist.all_reduce(value)
        assert (value == world).all()
        if turn == 0:
            print(f"first sum: {time.perf_counter() - began:.3f} s", flush=True)
    print(f"all: {time.perf_counter() - began:.3f} s", flush=True)
    while sys.argv[3:] and not Path(sys.argv[3]).exists():
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
