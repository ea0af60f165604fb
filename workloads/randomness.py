"""Give a forked worker random states of its own: as in a newly started process, every generator that no one
seeded gets a new state.

Python's hash seed stays as it is: the interpreter draws it at its start, and all dictionaries loaded so far
are laid out by it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class Unseeded:
    """Records the generators of `random` that are made or seeded from the system's randomness inside a `with`
    block. A generator that a library seeds with a fixed value has that value in every process, and is not
    recorded.
    """

    def __init__(self) -> None:
        self._generators: dict[int, random.Random] = {}
        self._seed: Callable[..., None] = random.Random.seed

    def __enter__(self) -> Self:
        generators, seed = self._generators, self._seed

        def noting(self: random.Random, a: Any = None, version: int = 2) -> None:
            seed(self, a, version)
            if a is None:
                generators[id(self)] = self
            else:
                generators.pop(id(self), None)

        random.Random.seed = noting  # type: ignore[method-assign]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        random.Random.seed = self._seed  # type: ignore[method-assign]

    def draw(self) -> None:
        """Reseed, in a fork: the recorded generators, the global ones of `random`, NumPy and torch, and the
        key by which `multiprocessing` authenticates its children.
        """
        import multiprocessing.process

        import numpy
        import torch

        random.seed()
        for generator in self._generators.values():
            generator.seed()
        numpy.random.seed()
        torch.default_generator.seed()
        multiprocessing.process.current_process().authkey = os.urandom(32)
