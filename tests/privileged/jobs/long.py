"""All-reduces for a number of seconds, and says how many were right."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("inc")
    world, end = dist.get_world_size(), time.monotonic() + float(sys.argv[1])
    turns = torch.zeros(1)
    go_on = torch.ones(1)
    while go_on.item() == world or turns.item() == 0:
        value = torch.full((20_011,), 1.0 + dist.get_rank())
        dist.all_reduce(value)
        assert (value == world * (world + 1) / 2).all()
        turns += 1
        go_on = torch.ones(1) if time.monotonic() < end else torch.zeros(1)
        dist.all_reduce(go_on)
        if turns.item() == 1:
            print("first sum", flush=True)
    print(f"right: {int(turns)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
