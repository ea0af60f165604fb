"""signSGD with majority vote (Bernstein et al., ICML 2018): workers push the signs of their gradients, and
take the sign of the sum. Two bits would do; here a sign takes eight, so that four ride in each lane.

    testbed run --sync docs/examples/majority_vote.py:MajorityVote SCRIPT.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from testbed.aggregation.forest import Forest, below_top, by_unit
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.topology.places import Host, switch
from testbed.wire.transports import PACKETS
from workloads.endpoint import Endpoint
from workloads.job_env import JobEnv
from workloads.outcome import Outcome
from workloads.quantiser import Floats, NotFiniteError


class MajorityVote:
    """Trees of switches, as they are; only what workers push and take is another."""

    programs: Mapping[str, str] = {"xdp": "sum", "bmv2": "sum"}

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """The switch of the first unit sums its workers and the other units' switches."""
        forest = Forest(tuple(workers), (below_top(workers, switch(min(by_unit(workers)))),))
        return Layout("majority-vote", tuple(workers), PACKETS, None, forest, forest.demands())

    def reducer(self, job: JobEnv, timeout_s: float) -> Signs:
        """Return the object by which a worker speaks."""
        return Signs(job, timeout_s)


class Signs:
    """-1, 0 or 1 an element: where most workers' gradients point."""

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        assert job.endpoint is not None
        self._endpoint = Endpoint(job.endpoint, job.board, timeout_s)
        self._under_way: deque[tuple[Floats, np.ndarray]] = deque()

    def submit(self, array: Floats) -> None:
        """Push signs as 0, 1 or 2: sums of 64 workers stay below 256, so that none carries into the next one.

        Raises NotFiniteError where a gradient is NaN, which has no sign, or an infinity.
        """
        if not np.isfinite(array).all():
            raise NotFiniteError("this worker has NaN or infinity in its gradients")
        votes = np.zeros(-(-array.size // 4) * 4, np.uint8)
        votes[: array.size] = np.sign(array) + 1
        lanes = votes.view(np.uint32)
        self._under_way.append((array, lanes))
        self._endpoint.submit_lanes(lanes)

    def finish(self) -> Outcome:
        """Make the oldest vector the signs of its sums. A vote of 1 is nobody's side, so as many as voted
        come off, which may be fewer than the workers.
        """
        array, lanes = self._under_way.popleft()
        outcome = self._endpoint.finish()
        voters = np.repeat(outcome.by_element(lanes.size), 4)[: array.size].astype(np.int16)
        array[:] = np.sign(lanes.view(np.uint8)[: array.size] - voters)
        return outcome

    def counters(self) -> dict[str, float]:
        return {"pushed": self._endpoint.counters.pushed}
