"""A DDP job whose last worker sleeps once for the given seconds, and computes faster than the others. Each
worker prints the times of its iterations, and a digest of its parameters at the end.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ITERATIONS, SLEEPS_BEFORE, COMPUTING_S = int(sys.argv[2]), 10, 0.008
asleep_s = float(sys.argv[1])
dist.init_process_group("inc")
rank, size = dist.get_rank(), dist.get_world_size()
is_late = rank == size - 1
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(97, 101))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
values = torch.Generator().manual_seed(rank)
began = []
for number in range(ITERATIONS):
    began.append(time.monotonic())
    if is_late and number == SLEEPS_BEFORE:
        time.sleep(asleep_s)
    time.sleep(0.0 if is_late else COMPUTING_S)
    optimizer.zero_grad()
    model(torch.randn(4, 97, generator=values)).square().mean().backward()
    optimizer.step()
began.append(time.monotonic())
parameters = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
since = began[SLEEPS_BEFORE]
said = {
    "rank": rank,
    "digest": hashlib.sha256(parameters).hexdigest(),
    "iterations": [[round(at - since, 4), round(end - at, 4)] for at, end in itertools.pairwise(began)],
}
print("said:", json.dumps(said), flush=True)
dist.destroy_process_group()
