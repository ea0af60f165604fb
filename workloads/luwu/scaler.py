"""A GradScaler for gradients that lie on an optimizer node.

Imports torch and, from the project, errors and the training script's optimizer.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from workloads.luwu.errors import LuwuError
from workloads.luwu.training import NodeOptimizer


class GradScaler(torch.amp.GradScaler):
    """torch's GradScaler for the optimizer of `initialize`, with torch's methods and scales.

    The node decides whether all gradients of all workers are finite; if not, all workers skip the iteration.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._finite_steps = 0  # since the last change of the scale
        self._skips: bool | None = (
            None  # whether this iteration is skipped; None before its gradients are checked
        )

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Check the gradients, and let clipping and the step divide them by the scale. Raises LuwuError for
        another optimizer, or where it was called already.
        """
        if not self.is_enabled():
            return
        if not isinstance(optimizer, NodeOptimizer):
            raise LuwuError(
                f"GradScaler of {type(optimizer).__name__}: accepted is the optimizer of initialize()"
            )
        if self._skips is not None:
            raise LuwuError("unscale_() was called already: call update() after each step()")
        self._skips = optimizer.unscale_(self.get_scale()) is not None

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Run the optimizer's step, or skip this iteration where gradients are not finite."""
        if not self.is_enabled():
            return optimizer.step(*args, **kwargs)
        if args or kwargs:
            raise LuwuError("GradScaler.step() with a closure: accepted is the optimizer alone")
        if self._skips is None:
            self.unscale_(optimizer)
        if self._skips:
            assert isinstance(optimizer, NodeOptimizer)
            optimizer.skip()
            return None
        return optimizer.step()

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Shrink the scale after a skipped iteration, and grow it after enough others; or set it to
        `new_scale`.
        """
        if not self.is_enabled():
            return
        if self._skips is None and new_scale is None:
            raise LuwuError("GradScaler.update(): step() comes before it")
        scale = self.get_scale()
        if new_scale is None:
            new_scale = scale
            if self._skips:
                new_scale, self._finite_steps = scale * self.get_backoff_factor(), 0
            else:
                self._finite_steps += 1
                if self._finite_steps == self.get_growth_interval():
                    grown = _binary32(scale * self.get_growth_factor())
                    new_scale, self._finite_steps = grown if math.isfinite(grown) else scale, 0
        super().update(new_scale)
        self._skips = None

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {**state, "_growth_tracker": self._finite_steps} if state else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self.is_enabled():
            self._finite_steps = int(state_dict["_growth_tracker"])


def _binary32(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).float())
