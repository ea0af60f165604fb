"""The randomness of a worker that is a fork: as in a process of its own, every generator that nobody seeded
has a state of its own.

Python's hash seed is not among it. It is drawn when the interpreter starts, and every dictionary that is
loaded lies by it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class Unseeded:
    """The generators of `random` that are made or seeded while this is entered, if that was by the system's
    randomness. Those that a library gives a seed of its own have that in every process.
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
        """Draw anew, in a fork: these, the global ones of `random`, NumPy and torch, and the key by which
        `multiprocessing` knows its children.
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
