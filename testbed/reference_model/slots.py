"""A slot of a place, in the reference model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.wire import frame, spec
from testbed.wire.codec import Header


@dataclass(slots=True)
class Slot:
    """A fragment's sum. `generation` None: empty."""

    generation: int | None = None
    fragment: int = 0
    members: int = 0
    count: int = 0
    age: int = 0  # of the packet that completed it
    contributors: int = 0  # workers in the sum
    complete: bool = False
    final: bool = False  # the lanes are the result, not a partial sum
    marked: bool = False  # whether a contribution came with congestion experienced
    degraded: bool = False  # whether workers are missing in the sum
    is_end: bool = False  # in a tree with an owner: whether it is the last of a request
    lanes: npt.NDArray[np.uint32] = field(default_factory=lambda: frame.NO_LANES)


def contributors_of(header: Header) -> int:
    """Return the number of workers in a contribution's lanes; 0 if a worker left its values out."""
    if header.op in (spec.Op.PUSH, spec.Op.EMPTY):
        return 0 if header.flags & spec.Flag.DEGRADED else 1
    return header.contributors


def difference(a: int, b: int) -> int:
    """Return a - b as a signed 32-bit number."""
    return (a - b + 2**31) % 2**32 - 2**31
