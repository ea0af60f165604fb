"""A job whose last worker sleeps for the given seconds before some of its sums. Each worker prints whether
its results were right: each sum is the mean of some workers, times the number of all.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import time

import torch
import torch.distributed as dist

LENGTH, SUMS, SLEEPS = 10_007, 30, (7, 19)
dist.init_process_group("inc")
rank, size = dist.get_rank(), dist.get_world_size()
asleep_s = float(sys.argv[1])
# of one magnitude, so that none is clipped in a sum whose vote lacked it
values = [64 + 2**each / 4 for each in range(size)]
means = {
    sum(values[each] for each in some) / count * size
    for count in range(1, size + 1)
    for some in itertools.combinations(range(size), count)
}
digest, wrong, lacking = hashlib.sha256(), 0, 0
for number in range(SUMS):
    if rank == size - 1 and number in SLEEPS:
        time.sleep(asleep_s)
    vector = torch.full((LENGTH,), values[rank])
    dist.all_reduce(vector)
    digest.update(vector.numpy().tobytes())
    parts = vector.unique().tolist()
    wrong += sum(min(abs(part - mean) for mean in means) > 1e-3 for part in parts)
    lacking += any(abs(part - sum(values)) > 1e-3 for part in parts)
said = {"rank": rank, "wrong": wrong, "lacking": lacking, "digest": digest.hexdigest()}
print("said:", json.dumps(said), flush=True)
dist.destroy_process_group()
