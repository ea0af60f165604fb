"""Represent the outcome of a sum: its contributors. Imports nothing but NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The number of contributors of a vector's sum, by fragment.

    A fragment has `lanes` elements, the last one perhaps fewer. A vector that its votes carried is one
    fragment.
    """

    workers: int
    lanes: int
    by_fragment: npt.NDArray[np.uint32]

    @classmethod
    def whole(cls, workers: int) -> Self:
        """Make the outcome of a sum, of any size, to which all workers contributed."""
        return cls(workers, 1 << 62, np.full(1, workers, np.uint32))

    @property
    def contributors(self) -> int:
        """Return the smallest number of contributors that any element of the sum has."""
        return int(self.by_fragment.min())

    @property
    def degraded(self) -> int:
        """Return the number of fragments that lack workers."""
        return int(np.count_nonzero(self.by_fragment < self.workers))

    def by_element(self, size: int) -> npt.NDArray[np.uint32]:
        """Return the number of contributors of each of the vector's `size` elements."""
        return self.by_fragment[np.arange(size) // self.lanes]
