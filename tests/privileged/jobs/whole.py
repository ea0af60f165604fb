"""Sum whole numbers by the job's system; they must come out exactly. The vectors have prime lengths."""

from __future__ import annotations

import torch
import torch.distributed as dist

LENGTHS = (1, 359, 10_007)


def main() -> None:
    dist.init_process_group("inc")
    rank, size = dist.get_rank(), dist.get_world_size()
    for length in LENGTHS:
        base = (torch.arange(length) * 7919) % 10_007
        value = ((rank + 1) * base).to(torch.float32)
        dist.all_reduce(value)
        wanted = (size * (size + 1) // 2 * base).to(torch.float32)
        assert torch.equal(value, wanted), (rank, length, (value - wanted).abs().max())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
