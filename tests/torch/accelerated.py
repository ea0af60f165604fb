"""A worker that trains with accelerate, as in its quick tour, without naming a backend.

Prints one JSON line: the number of workers that accelerate reports, the steps of its optimizer, and the sum
of the squares of this worker's parameters at the end.
"""

from __future__ import annotations

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MARK = "accelerated: "
ROWS, BATCH, EPOCHS = 120, 5, 2


def main() -> None:
    from accelerate import Accelerator  # installed in the workers' environment, not in the driver's

    torch.set_num_threads(1)
    torch.manual_seed(5)
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(31, 67), nn.ReLU(), nn.Linear(67, 7))
    data, wanted = torch.randn(ROWS, 31), torch.randn(ROWS, 7)
    loader = DataLoader(TensorDataset(data, wanted), batch_size=BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward((model(inputs) - targets).square().mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            steps += 1
    squares = sum(float(each.detach().double().square().sum()) for each in model.parameters())
    print(MARK + json.dumps({"workers": accelerator.num_processes, "steps": steps, "squares": squares}))
    accelerator.end_training()


if __name__ == "__main__":
    main()
