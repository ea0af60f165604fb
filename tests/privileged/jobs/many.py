"""Many small vectors at once, and one after the other: the time of each way, and whether the sums are right.
Then large ones between hundreds of tiny ones, and one after a pause longer than the group's time limit. The
argument says how often each way is tried; the job prints the medians.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from statistics import median

import torch
import torch.distributed as dist

COUNT, LENGTH, LIMIT_S = 101, 997, 5
START_S = 300
MIXED = (40_009, *(3,) * 263, 40_009, *(3,) * 11, 50_021, *(3,) * 5, 1009)


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # a store of our own: torch's would require all workers to start within the group's time limit
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(master, port, world, rank == 0, datetime.timedelta(seconds=START_S))
    limit = datetime.timedelta(seconds=LIMIT_S)
    dist.init_process_group("inc", store=store, rank=rank, world_size=world, timeout=limit)
    expected = [sum((i + 1) * (r + 1) for r in range(world)) for i in range(COUNT)]

    def vectors(length: int) -> list[torch.Tensor]:
        return [torch.full((length,), float((i + 1) * (rank + 1))) for i in range(COUNT)]

    report: dict[str, object] = {}
    for length in (LENGTH, 3):
        right, one_by_one_s, together_s = True, [], []
        for _ in range(int(sys.argv[1])):
            dist.barrier()
            start = time.perf_counter()
            one_by_one = vectors(length)
            for value in one_by_one:
                dist.all_reduce(value)
            middle = time.perf_counter()
            together = vectors(length)
            for work in [dist.all_reduce(value, async_op=True) for value in together]:
                work.wait()
            one_by_one_s.append(middle - start)
            together_s.append(time.perf_counter() - middle)
            sums = zip([*one_by_one, *together], expected * 2, strict=True)
            right = right and all((value == total).all().item() for value, total in sums)
        report[str(length)] = {
            "right": right,
            "one_by_one_s": median(one_by_one_s),
            "together_s": median(together_s),
        }
    mixed = [torch.full((length,), float(rank + 1)) for length in MIXED]
    for work in [dist.all_reduce(value, async_op=True) for value in mixed]:
        work.wait()
    total = world * (world + 1) / 2
    report["mixed"] = all((value == total).all().item() for value in mixed)
    time.sleep(LIMIT_S + 0.5 + 0.3 * rank)
    late = torch.full((LENGTH,), float(rank + 1))
    dist.all_reduce(late)
    report["late"] = (late == total).all().item()
    many = [torch.full((5,), float(rank + 1)) for _ in range(200)]
    dist.all_reduce_coalesced(many)
    report["coalesced"] = all((value == total).all().item() for value in many)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
