"""Two iterations of a model that is too large for the process's memory: `python -m tests.unit.luwu_bounded
FOLDER`.
"""

from __future__ import annotations

import gc
import mmap
import re
import resource
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import torch
from torch import nn

from tests.unit.luwu_world import World
from workloads.luwu.layout import Layer, Model, Tensor
from workloads.luwu.node import Node
from workloads.luwu.rule import Rule, first_states, placeholders, views
from workloads.luwu.store import Store
from workloads.luwu.training import initialize

LAYERS, WIDTH = 20, 800
POOL_BYTES = 28 << 20
LIMIT_BYTES = 64 << 20


class Workers:
    """Workers without state: their gradients are ones."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def push(self, iteration: int, phase: str, layer: int, parameters: memoryview) -> Future[None]:
        return done()

    def pull(self, iteration: int, layer: int, gradients: memoryview) -> Future[None]:
        for each in views(self._model.layers[layer], gradients, torch.float32):
            each.fill_(1.0)
        return done()


def done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def data_bytes() -> int:
    found_kb = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found_kb is not None
    return int(found_kb[1]) * 1024


def limit_data() -> None:
    limit = data_bytes() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def train(folder: Path, limit: Callable[[], object]) -> Model:
    """Train two iterations within a limit that is set once torch is loaded, and return the model."""
    threading.stack_size(512 << 10)
    for name in ("small", "large"):
        (folder / name).mkdir()
    with World([folder / "small"]) as world:  # loads what torch needs for its first step
        world.node.iterate()
    layers = [Layer(f"{n}", (Tensor(f"{n}.weight", (WIDTH, WIDTH)),)) for n in range(LAYERS)]
    model = Model(layers)
    gc.collect()
    gc.disable()  # memory must not wait for the collector
    limit()
    parameters = placeholders(model)
    optimizer = torch.optim.AdamW(list(parameters.values()), lr=0.01)
    fill = first_states(lambda _: torch.zeros(WIDTH, WIDTH), torch.bfloat16)
    with (
        Store.create([folder / "large"], model, "AdamW", fill) as store,
        Node(store, Rule(optimizer, model, parameters), Workers(model), POOL_BYTES) as node,
    ):
        node.iterate()
        node.iterate()
    return model


def ones(width: int) -> Callable[[str], torch.Tensor]:
    return lambda _: torch.ones(width, width)


def train_by_script(folder: Path, limit: Callable[[], object]) -> Model:
    """Train two iterations by a training script, within a limit that is set once torch has trained a small
    model, and return the model.
    """
    torch.set_num_threads(1)
    for name, width, count in (("small", 8, 2), ("large", WIDTH, LAYERS)):
        (folder / name).mkdir()
        if name == "large":
            gc.collect()
            gc.disable()  # memory must not wait for the collector
            limit()
        with torch.device("meta"):
            blocks = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(count)).bfloat16()
        optimizer = torch.optim.AdamW(blocks.parameters(), lr=0.01)
        _, handle = initialize(blocks, optimizer, [folder / name], values=ones(width))
        for _ in range(2):
            handle.zero_grad()
            x = torch.ones(1, width, dtype=torch.bfloat16)
            for block in blocks:
                x = block(x) / width
            x.sum().backward()  # type: ignore[no-untyped-call]
            handle.step()
        assert handle.iteration == 2
        handle.close()
    layers = [Layer(f"{n}", (Tensor(f"{n}.weight", (WIDTH, WIDTH)),)) for n in range(LAYERS)]
    return Model(layers)


def main(folder: Path) -> None:
    size = train(folder, limit_data).numel * 14
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        refused = 1
    else:
        refused = 0
    print(f"model={size} limit={LIMIT_BYTES} refused={refused}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
