"""Many small vectors at once, and one after the other: what each way took, and whether the sums are right."""

from __future__ import annotations

import json
import time

import torch
import torch.distributed as dist

COUNT, LENGTH = 101, 997


def main() -> None:
    dist.init_process_group("inc")
    rank, world = dist.get_rank(), dist.get_world_size()
    expected = [sum((i + 1) * (r + 1) for r in range(world)) for i in range(COUNT)]

    def vectors(length: int) -> list[torch.Tensor]:
        return [torch.full((length,), float((i + 1) * (rank + 1))) for i in range(COUNT)]

    found: dict[str, object] = {}
    for length in (LENGTH, 3):
        dist.barrier()
        start = time.perf_counter()
        one_by_one = vectors(length)
        for value in one_by_one:
            dist.all_reduce(value)
        middle = time.perf_counter()
        together = vectors(length)
        for work in [dist.all_reduce(value, async_op=True) for value in together]:
            work.wait()
        end = time.perf_counter()
        found[str(length)] = {
            "right": all((v == e).all().item() for v, e in zip([*one_by_one, *together], expected * 2, strict=True)),
            "one_by_one_s": middle - start,
            "together_s": end - middle,
        }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
