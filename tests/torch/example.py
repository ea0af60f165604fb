"""A worker that runs a public example unchanged: `example.py BACKEND FOLDER SCRIPT [ARGUMENT...]`, as a job.

The CPU stands in for the GPUs that it asks for, and BACKEND replaces the backend that it names. Prints one
JSON line: the seconds, the steps of its optimizer and the sum of the squares of this worker's parameters at
the end.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from tests.torch import accelerator
from torch.distributed import device_mesh
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook

MARK = "example: "
ATTENTION = "scaled_dot_product_attention"


class Steps:
    """Counts the optimizers' steps of a script."""

    def __init__(self) -> None:
        self.count = 0
        self._optimizer: Any = None
        register_optimizer_step_post_hook(self._after)

    def _after(self, optimizer: Any, *_: Any) -> None:
        self.count += 1
        self._optimizer = optimizer

    def squares(self) -> float:
        """Return the sum of the squares of this worker's part of the last optimizer's parameters."""
        groups = self._optimizer.param_groups if self._optimizer else []
        parts = [getattr(each, "_local_tensor", each) for group in groups for each in group["params"]]
        return float(sum(part.detach().double().square().sum() for part in parts))


def by_part(attend: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap attention so that each worker attends to its own heads. DTensor has such rules for a GPU's
    kernels, and none for the CPU's.
    """

    def attended(*arguments: Any, **words: Any) -> Any:
        query = arguments[0]
        if not isinstance(query, DTensor):
            return attend(*arguments, **words)
        parts = [each.to_local() if isinstance(each, DTensor) else each for each in arguments]
        return DTensor.from_local(attend(*parts, **words), query.device_mesh, query.placements)

    return attended


def main() -> None:
    backend, folder, script, *arguments = sys.argv[1:]
    os.chdir(folder)
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ["RANK"]))
    init = dist.init_process_group

    def init_process_group(_backend: Any = None, *rest: Any, **words: Any) -> None:
        words = {name: value for name, value in words.items() if name not in ("backend", "device_id")}
        init(backend, *rest, **words)

    dist.init_process_group = init_process_group
    device_mesh.init_process_group = init_process_group  # type: ignore[attr-defined]
    steps = Steps()
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    begun_s = time.monotonic()
    attention = mock.patch.object(functional, ATTENTION, by_part(getattr(functional, ATTENTION)))
    with accelerator.in_place(by_any_name=True), attention:
        runpy.run_path(script, run_name="__main__")
    said = {
        "rank": int(os.environ["RANK"]),
        "seconds": time.monotonic() - begun_s,
        "steps": steps.count,
        "squares": steps.squares(),
    }
    print(MARK + json.dumps(said), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
