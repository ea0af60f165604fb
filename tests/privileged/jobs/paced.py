"""`paced.py SECONDS GRADIENTS PAUSE_S`: all-reduces of so many gradients, with a pause after each, for a number of seconds."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("inc")
    seconds, gradients, pause_s = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    world, end = dist.get_world_size(), time.monotonic() + seconds
    value, on_time = torch.zeros(gradients), 1.0
    while on_time == 1.0:
        value.fill_(1.0)
        value[0] = 1.0 if time.monotonic() < end else 0.0  # all stop at the same turn
        dist.all_reduce(value)
        assert (value[1:] == world).all()
        on_time = value[0].item() / world
        time.sleep(pause_s)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
