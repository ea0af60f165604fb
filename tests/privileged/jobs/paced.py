"""All-reduces with a pause after each, for a number of seconds: a link that is used and far from full."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

GRADIENTS = 5_003
PAUSE_S = 0.04


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("inc")
    world, end = dist.get_world_size(), time.monotonic() + float(sys.argv[1])
    value, on_time = torch.zeros(GRADIENTS), 1.0
    while on_time == 1.0:
        value.fill_(1.0)
        value[0] = 1.0 if time.monotonic() < end else 0.0  # all stop at the same turn
        dist.all_reduce(value)
        assert (value[1:] == world).all()
        on_time = value[0].item() / world
        time.sleep(PAUSE_S)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
