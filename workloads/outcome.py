"""The outcome of a sum: who is in it. Imports nothing but NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The contributors of a vector's sum, fragment by fragment: `lanes` elements each, the last one perhaps
    fewer. A vector whose values were in its vote is one fragment.
    """

    workers: int
    lanes: int
    by_fragment: npt.NDArray[np.uint32]

    @classmethod
    def whole(cls, workers: int) -> Self:
        """The outcome of a sum, of any size, to which all workers contributed."""
        return cls(workers, 1 << 62, np.full(1, workers, np.uint32))

    @property
    def contributors(self) -> int:
        """Return the number of workers that every element of the sum has at least."""
        return int(self.by_fragment.min())

    @property
    def degraded(self) -> int:
        """Return the number of fragments that lack workers."""
        return int(np.count_nonzero(self.by_fragment < self.workers))

    def by_element(self, size: int) -> npt.NDArray[np.uint32]:
        """The number of contributors of each of the vector's `size` elements."""
        return self.by_fragment[np.arange(size) // self.lanes]
