"""Sums of real gradients by the quantiser are about as near to the exact ones as those of binary32's ring."""

from __future__ import annotations

import pytest
import torch

from tests.bench.precision import errors, gradients, of_digits


@pytest.mark.parametrize("workers", [2, 8])
def test_real_gradients_have_about_the_rings_error(workers: int) -> None:
    """One scale for the whole vector gives them a larger one."""
    torch.manual_seed(1)
    ((_, vectors),) = gradients(*of_digits(), workers, [0])
    off = errors(vectors)
    assert off["over_ring"] <= 1.5
    assert off["one_scale_over_ring"] > 1.5
    assert off["zeroed"] < 1e-3
