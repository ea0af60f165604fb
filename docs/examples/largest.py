"""The elementwise largest of float32 tensors, found in the network by a data-plane program of one's own: for
scales of FP8 training (Micikevicius et al., 2022), or the longest of workers' times.

    sudo .venv/bin/testbed up --config CONFIG.yaml        with `programs: [docs/examples/largest.py:Program]`
    testbed run --sync docs/examples/largest.py:Largest SCRIPT.py

Each all_reduce of float32 of all workers in SCRIPT.py, a sum for torch, has the largest then: ReduceOp.SUM
alone, for AVG would divide it; groups of some of the workers have sums. docs/your-own-system.md says what
each part is for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.aggregation.forest import Forest, below_top, by_unit
from testbed.aggregation.packets import Packets
from testbed.aggregation.program import Capacity, Grant
from testbed.aggregation.site import Site
from testbed.aggregation.slots import SlotProgram
from testbed.aggregation.system import Layout
from testbed.topology.places import Host, switch
from testbed.wire.transports import PACKETS
from workloads.endpoint import Endpoint
from workloads.job_env import JobEnv
from workloads.outcome import Outcome
from workloads.quantiser import Floats, NotFiniteError

MOST = np.int32(0x7FFFFFFF)


@dataclass(slots=True)
class Whole(Grant):
    """Slots whose places take no push without lanes: it would stand for zeros."""

    @property
    def takes_empties(self) -> bool:
        return False


class Program(SlotProgram):
    """The program that `testbed up` loads; slots are shared out as the core shares them."""

    name = "largest"
    sources: Mapping[str, Path] = {"xdp": Path(__file__).resolve().with_suffix(".h")}

    def grant(
        self, job: int, forest: Forest, packets: Packets, capacity: Capacity, size: int | None
    ) -> Grant:
        return Whole(super().grant(job, forest, packets, capacity, size).size)

    def grants_of_groups(self, grant: Grant, trees: int) -> Sequence[Grant]:
        return [Whole(each.size) for each in super().grants_of_groups(grant, trees)]


class Largest:
    """Trees of switches, as they are; what they make of two contributions is another."""

    programs: Mapping[str, str] = {"xdp": Program.name}

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """The switch of the first unit has its workers' and the other units' switches'."""
        forest = Forest(tuple(workers), (below_top(workers, switch(min(by_unit(workers)))),))
        return Layout("largest", tuple(workers), PACKETS, None, forest, forest.demands())

    def reducer(self, job: JobEnv, timeout_s: float) -> Ordered:
        """Return the object by which a worker speaks."""
        return Ordered(job, timeout_s)


class Ordered:
    """Floats as integers of the same order: negative ones have their other bits inverted."""

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        assert job.endpoint is not None
        self._endpoint = Endpoint(job.endpoint, job.board, timeout_s)
        self._under_way: deque[tuple[Floats, np.ndarray]] = deque()

    def submit(self, array: Floats) -> None:
        """Push the array. NotFiniteError where it has NaN, which has no order."""
        if np.isnan(array).any():
            raise NotFiniteError("this worker has NaN in its tensor")
        lanes = _turned(array.view(np.int32)).view(np.uint32)
        self._under_way.append((array, lanes))
        self._endpoint.submit_lanes(lanes)

    def finish(self) -> Outcome:
        """Make the oldest array the largest of all workers'."""
        array, lanes = self._under_way.popleft()
        outcome = self._endpoint.finish()
        array[:] = _turned(lanes.view(np.int32)).view(np.float32)
        return outcome

    def counters(self) -> dict[str, float]:
        return {"pushed": self._endpoint.counters.pushed}


def _turned(bits: np.ndarray) -> np.ndarray:
    """Its own inverse."""
    return bits ^ ((bits >> 31) & MOST)
