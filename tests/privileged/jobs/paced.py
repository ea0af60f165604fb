"""`paced.py SECONDS GRADIENTS PAUSE_S [SPIN_S]`: all-reduce GRADIENTS values for SECONDS; after each sum,
pause for PAUSE_S and compute for SPIN_S on a core.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("inc")
    seconds, gradients, pause_s = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    spin_s = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    world, end = dist.get_world_size(), time.monotonic() + seconds
    value, on_time = torch.zeros(gradients), 1.0
    while on_time == 1.0:
        value.fill_(1.0)
        value[0] = 1.0 if time.monotonic() < end else 0.0  # all stop at the same turn
        dist.all_reduce(value)
        assert (value[1:] == world).all()
        on_time = value[0].item() / world
        time.sleep(pause_s)
        done_s = time.thread_time() + spin_s
        while time.thread_time() < done_s:
            pass
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
