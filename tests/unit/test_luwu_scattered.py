"""The tuned FSDP's reduce-scatter: means of all workers' gradients, when `wait` has returned."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from workloads.luwu.intervals import Log
from workloads.luwu.jobs.scattered import Scatter

WORKERS, SIZE = 2, 6


def worker(rank: int, store: str, answers: Any) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORKERS)
    log = Log()
    scatter = Scatter(log)
    outputs = []
    for turn in range(3):
        sent = scatter.allocate((SIZE,), dtype=torch.float32, device=torch.device("cpu"))
        sent.copy_(torch.arange(SIZE) * (rank + 1) + turn)
        outputs.append(scatter.allocate((SIZE // WORKERS,), dtype=torch.float32, device=sent.device).zero_())
        scatter(outputs[-1], sent, dist.group.WORLD, dist.ReduceOp.AVG)
        sent.fill_(99.0)  # FSDP's input is its own again
    scatter.finish()
    scatter.close()
    answers.put((rank, [output.tolist() for output in outputs], len(log.taken()[0])))
    dist.barrier()
    dist.destroy_process_group()


def test_shards_are_means_over_the_workers(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [
        context.Process(target=worker, args=(rank, str(tmp_path / "store"), answers)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    seen = sorted(answers.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    for rank, outputs, communicated in seen:
        assert communicated == 3
        for turn, output in enumerate(outputs):
            assert output == pytest.approx([1.5 * at + turn for at in range(3 * rank, 3 * rank + 3)])
