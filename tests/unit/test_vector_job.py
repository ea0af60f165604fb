"""The vectors that workloads/jobs/vectors.py sums: what it takes for right, and what for wrong."""

from __future__ import annotations

import pytest
import torch

from workloads.jobs import vectors
from workloads.jobs.layers import factor

WORKERS, TURN = 7, 3


def _summed(base: torch.Tensor, ranks: range) -> torch.Tensor:
    return sum((base * factor(rank, TURN) for rank in ranks), torch.zeros_like(base))


def test_a_right_sum_is_within_the_tolerance() -> None:
    base = vectors.pattern(1009)
    assert vectors.error(_summed(base, range(WORKERS)), base, WORKERS, TURN) <= vectors.TOLERANCE


@pytest.mark.parametrize("lacking", range(WORKERS))
def test_a_sum_without_a_worker_is_beyond_it(lacking: int) -> None:
    base = vectors.pattern(1009)
    ranks = [rank for rank in range(WORKERS) if rank != lacking]
    summed = sum((base * factor(rank, TURN) for rank in ranks), torch.zeros_like(base))
    assert vectors.error(summed, base, WORKERS, TURN) > 100 * vectors.TOLERANCE


def test_one_wrong_value_is_beyond_it() -> None:
    base = vectors.pattern(1009)
    summed = _summed(base, range(WORKERS))
    summed[500] += 0.01
    assert vectors.error(summed, base, WORKERS, TURN) > vectors.TOLERANCE
