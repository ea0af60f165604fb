"""Train a small network by DistributedDataParallel: an ordinary script with the backend "inc".

The worker of rank 0 prints its last loss as JSON, which the testbed's result has as `reported`.
"""

from __future__ import annotations

import json

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)  # the workers share the machine's cores
torch.manual_seed(1)
dist.init_process_group("inc")
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
)
loss_of = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(2 + dist.get_rank())  # a shard of its own for each worker
for _ in range(20):
    images = torch.randn(32, 64, generator=data)
    loss = loss_of(model(images), images[:, :10].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(json.dumps({"loss": loss.item()}), flush=True)
dist.destroy_process_group()
