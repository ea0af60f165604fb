"""One worker is absent when the others wait for it: `absent.py DEED WHEN [RANK]`. It does the deed before sum
WHEN; 0: before it joins the process group. It prints the time by the clock that all processes share.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

ASLEEP_S = 8.0
DEEDS = {
    "exits": lambda: sys.exit(0),
    "ends": lambda: os._exit(0),
    "sleeps": lambda: time.sleep(ASLEEP_S),
    "stops": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "fails": lambda: sys.exit(3),
}


def main() -> None:
    deed, when = sys.argv[1], int(sys.argv[2])
    mine = int(os.environ["RANK"]) == int((*sys.argv, "1")[3])
    for turn in range(when + 6):
        if mine and turn == when:
            print(f"deed: {time.monotonic_ns()} {os.getpid()}", flush=True)
            DEEDS[deed]()
        if turn == 0:
            dist.init_process_group("inc")
            continue
        value = torch.ones(100)
        dist.all_reduce(value)
    dist.destroy_process_group()
    print("done", flush=True)


if __name__ == "__main__":
    main()
