"""Sum a NaN of worker 1's, in a vector that its vote carries and in one that is sent in fragments."""

from __future__ import annotations

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("inc")
    for size in (3, 10_007):
        value = torch.ones(size)
        if dist.get_rank() == 1:
            value[0] = float("nan")
        try:
            dist.all_reduce(value)
        except RuntimeError as error:
            print(f"error: {type(error).__name__}: {error}", flush=True)
        else:
            print("sum:", *value[:3].tolist(), flush=True)
    after = torch.ones(7)
    dist.all_reduce(after)
    print(f"after: {after[0].item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
