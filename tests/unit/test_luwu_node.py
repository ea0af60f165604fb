"""The optimizer node of LuWu trains as torch does, to the last bit, and within its bound of memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR, OneCycleLR, SequentialLR

from tests.unit.luwu_world import Optimizer, Reference, Schedule, World, adam, adamw, same, small


def warm_up(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    rising = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    return SequentialLR(optimizer, [rising, CosineAnnealingLR(optimizer, 20)], [5])


def folders(tmp_path: Path, count: int) -> list[Path]:
    paths = [tmp_path / f"disk{number}" for number in range(count)]
    for path in paths:
        path.mkdir()
    return paths


@pytest.mark.parametrize("disks", [1, 3])
@pytest.mark.parametrize("clip", [None, 0.5], ids=["unclipped", "clipped"])
@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        (adamw, None),
        (adam, None),
        (adamw, warm_up),
        (adamw, partial(MultiStepLR, milestones=[3, 11])),
        (adamw, partial(OneCycleLR, max_lr=[0.1, 0.05, 0.02], total_steps=40)),
    ],
    ids=["adamw", "adam", "warm-up", "steps", "one cycle"],
)
def test_training_is_torchs_to_the_last_bit(
    tmp_path: Path, disks: int, clip: float | None, make: Optimizer, schedule: Schedule | None
) -> None:
    reference = Reference(small(), make, schedule, clip)
    with World(folders(tmp_path, disks), make=make, schedule=schedule, clip=clip) as world:
        for iteration in range(1, 18):
            reference.iterate()
            assert world.node.iterate() == iteration
        assert same(world.states(), reference.states())
        layers = len(world.model.layers)
        forward = [("push", "forward", layer) for layer in range(layers)]
        backward = [
            step
            for layer in reversed(range(layers))
            for step in (("push", "backward", layer), ("pull", "", layer))
        ]
        assert world.network.order == (forward + backward) * 17
