"""Train with error feedback, once throughout and once from a checkpoint in the middle: the results are equal
to the bit where the checkpoint has the feedback's state. Prints whether they are, with the state and without
it.
"""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from workloads.feedback import ErrorFeedback, error_feedback_hook

STEPS, SAVED = 12, 6


class Training:
    """A model whose gradients differ widely in magnitude, and its optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(11)
        self.model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4))
        # otherwise DDP rebuilds its buckets after the first iteration, which changes fragments and rounding
        self.ddp = DistributedDataParallel(self.model, find_unused_parameters=True)
        self.feedback = ErrorFeedback(self.model)
        self.ddp.register_comm_hook(self.feedback, error_feedback_hook)
        self.optimiser = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)

    def step(self, number: int) -> None:
        data = torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * number + dist.get_rank()))
        self.optimiser.zero_grad()
        out = self.ddp(data)
        (out[:, 0].sum() + 1e-9 * out[:, 1:].square().sum()).backward()
        self.optimiser.step()

    def weights(self) -> Tensor:
        return torch.cat([value.detach().flatten() for value in self.model.parameters()])


def main() -> None:
    dist.init_process_group("inc")
    whole = Training()
    for number in range(SAVED):
        whole.step(number)
    saved = copy.deepcopy(
        (whole.model.state_dict(), whole.optimiser.state_dict(), whole.feedback.state_dict())
    )
    assert any(value.any() for value in saved[2].values()), "something was left out"
    for number in range(SAVED, STEPS):
        whole.step(number)
    for has_state in (True, False):
        again = Training()
        again.model.load_state_dict(saved[0])
        again.optimiser.load_state_dict(saved[1])
        if has_state:
            again.feedback.load_state_dict(saved[2])
        for number in range(SAVED, STEPS):
            again.step(number)
        same = torch.equal(again.weights(), whole.weights())
        print(
            f"resumed {'with' if has_state else 'without'} its state: {'same' if same else 'other'}",
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
