"""The optimizer node of LuWu trains as torch does, to the last bit, and within its bound of memory."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR, OneCycleLR, SequentialLR

from tests.unit.luwu_world import Optimizer, Reference, Schedule, World, adam, adamw, same, small
from workloads.luwu.errors import DiskError
from workloads.luwu.layout import Layer, Model, Tensor
from workloads.luwu.node import BACKWARD, Node, _Task, await_all
from workloads.luwu.pool import Pool
from workloads.luwu.store import GRADIENTS


def warm_up(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    rising = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    return SequentialLR(optimizer, [rising, CosineAnnealingLR(optimizer, 20)], [5])


def folders(tmp_path: Path, count: int) -> list[Path]:
    paths = [tmp_path / f"disk{number}" for number in range(count)]
    for path in paths:
        path.mkdir()
    return paths


@pytest.mark.filterwarnings("error")  # of a schedule that has seen no step
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


@pytest.mark.parametrize("clip", [None, 0.5], ids=["unclipped", "clipped"])
def test_a_slow_network_keeps_its_buffers(tmp_path: Path, clip: float | None) -> None:
    """Answers come late, the ones of a layer before those of the layer before it."""
    reference = Reference(small(), adamw, None, clip)
    with World(folders(tmp_path, 1), clip=clip, delay_s=0.02, memory_bytes=160_000) as world:
        for _ in range(5):
            reference.iterate()
            world.node.iterate()
        assert same(world.states(), reference.states())
        assert world.node.pool.most_bytes <= 160_000
    assert world.network.overwritten == []


def settled(problem: Exception | None = None) -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None) if problem is None else future.set_exception(problem)
    return future


def test_no_error_is_raised_while_others_use_what_they_were_given() -> None:
    """Whoever waits gives the buffers back then."""
    others: Future[None] = Future()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            await_all([settled(DiskError("first")), others, settled(DiskError("second"))])
        except DiskError as problem:
            raised.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    others.set_result(None)
    thread.join()
    assert [str(problem) for problem in raised] == ["first"]


def test_a_read_that_failed_is_told_though_a_push_never_ends() -> None:
    """The one that is pushed to may have ended: nothing but the failure ends that wait."""
    node: Any = Node.__new__(Node)
    node._store, node._norm = SimpleNamespace(model=small()), None
    layer = node._store.model.layers[0]
    buffers = Pool(layer.gradients_bytes).take([layer.gradients_bytes])
    assert buffers is not None
    task = _Task(BACKWARD, 0, {GRADIENTS: buffers[0]})
    task.accepted, task.read, task.pushed = [settled()], [settled(DiskError("gone"))], [Future()]
    raised: list[BaseException] = []

    def work() -> None:
        try:
            node._update(task)
        except DiskError as problem:
            raised.append(problem)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10.0)
    assert [str(problem) for problem in raised] == ["gone"]


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_large_tensors_and_either_format(tmp_path: Path, kind: str) -> None:
    """Torch cuts these among its threads, and a layer is many pieces of a disk."""
    model = small(kind, [("a", ((701, 613), (613,))), ("b", ((1, 499_979),))])
    model = Model([*model.layers, Layer("embed", (Tensor("embed", (7,)),))], kind)
    reference = Reference(model, adamw, warm_up, 1.0)
    with World(
        folders(tmp_path, 2), model=model, schedule=warm_up, clip=1.0, memory_bytes=20_000_000
    ) as world:
        for _ in range(4):
            reference.iterate()
            world.node.iterate()
        assert same(world.states(), reference.states())
