"""All-reduce for a number of seconds, or until a file exists, and print how many sums were right."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist


def ending(word: str) -> Callable[[], bool]:
    """Return a function that says whether it is time to end. `word` is a number of seconds from now, or the
    path of a file.
    """
    if "/" in word:
        return Path(word).exists
    end = time.monotonic() + float(word)
    return lambda: time.monotonic() >= end


def main() -> None:
    dist.init_process_group("inc")
    world, is_over = dist.get_world_size(), ending(sys.argv[1])
    turns = torch.zeros(1)
    go_on = torch.ones(1)
    while go_on.item() == world or turns.item() == 0:
        value = torch.full((20_011,), 1.0 + dist.get_rank())
        dist.all_reduce(value)
        assert (value == world * (world + 1) / 2).all()
        turns += 1
        go_on = torch.zeros(1) if is_over() else torch.ones(1)
        dist.all_reduce(go_on)
        if turns.item() == 1:
            print("first sum", flush=True)
    print(f"right: {int(turns)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
