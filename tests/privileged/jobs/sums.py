"""Sums a vector of so many megabytes so many times, and says what each took: a job without computing."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    megabytes, times = float(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("inc")
    world = dist.get_world_size()
    value = torch.empty(round(megabytes * 1e6 / 4))
    for turn in range(times):
        value.fill_(1.0)
        began = time.perf_counter()
        dist.all_reduce(value)
        assert (value == world).all()
        if turn in (0, times - 1):
            print(f"sum {turn}: {time.perf_counter() - began:.3f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
