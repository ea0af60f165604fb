"""The ways to sum a binary32 vector over the workers of a job: in the network, or at a parameter server.

Vectors come in the same order on all workers. One thread at a time calls `submit`, and one `finish`. The ring
needs no reducer: gloo sums in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from testbed.plugins.user_class import is_users, load
from testbed.wire.transports import PACKETS, SERVER
from workloads.job_env import JobEnv
from workloads.outcome import Outcome
from workloads.quantiser import Floats


class Reducer(Protocol):
    """Sums contiguous binary32 vectors over the workers, in the order in which they are submitted."""

    def submit(self, array: Floats) -> None:
        """Queue a vector, to be replaced by its sum over all workers."""

    def finish(self) -> Outcome:
        """Wait for the oldest vector that is submitted and not finished, and return the contributors of its
        sum. Raises the error that prevented the sum.
        """

    def counters(self) -> dict[str, float]:
        """Return the reducer's counters, for the job's statistics."""


class InNetwork:
    """Sums in the network, by the aggregation protocol.

    The compiled backend uses the job's own object directly through its endpoint (`endpoint`), without
    `submit` and `finish`. For an object of a derived class it calls these two.
    """

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        from workloads.endpoint import Endpoint

        assert job.endpoint is not None
        self._endpoint = Endpoint(job.endpoint, job.board, timeout_s)
        self.close = self._endpoint.close
        self.submit = self._endpoint.submit
        self.finish = self._endpoint.finish

        self.failure_of = self._endpoint.failure_of
        self.is_broken = self._endpoint.is_broken
        self.endpoint = self._endpoint.addresses

    def set_check(self, check: Callable[[], None]) -> None:
        """Set a function that is called while no result comes. If the workers do not ask for the same
        collective it raises RuntimeError, which ends the wait.
        """
        self._endpoint.check = check

    def set_timeout(self, timeout_s: float) -> None:
        """Set how long vectors that are submitted from now on wait for a result, in seconds."""
        self._endpoint.timeout_s = timeout_s

    def counters(self) -> dict[str, float]:
        counters = self._endpoint.counters
        return {
            "pushed": counters.pushed,
            "retransmits": counters.retransmitted,
            "timeouts": counters.timeouts,
            "wakes": counters.wakes,
            "ecn": counters.notices,
            "window": round(counters.window_sum / max(1, counters.window_samples), 1),
            "window_min": counters.window_min,
            "rtt_us": round(counters.rtt_us, 1),
            "degraded": counters.degraded,
            "left_out": counters.left_out,
            "scaled": counters.scaled,
            "zeroed": counters.zeroed,
            "asked": counters.asked,
        }


class ParameterServer:
    """Sums at a parameter server on a host, over TCP."""

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        from workloads.ps_client import PsClient

        if job.ps is None:
            raise ValueError(f"job {job.job_id}: it has no parameter server")
        self._client = PsClient(job.ps, job.rank, job.world_size, timeout_s)
        self._workers = job.world_size
        self.submit = self._client.submit
        self.set_timeout = self._client.set_timeout

    def finish(self) -> Outcome:
        """Wait for the oldest vector. A server sums over all workers or fails."""
        self._client.finish()
        return Outcome.whole(self._workers)

    def counters(self) -> dict[str, float]:
        return {}


def reducer_for(job: JobEnv, timeout_s: float) -> Reducer | None:
    """Make the reducer for the job's transport; None where gloo sums.

    A user's own system may bring a reducer, by its method `reducer(job, timeout_s)`.
    """
    if is_users(job.system):
        system = load(job.system, job.asked_in)()
        if callable(getattr(system, "reducer", None)):
            own: Reducer = system.reducer(job, timeout_s)
            return own
    if job.transport == PACKETS:
        return InNetwork(job, timeout_s)
    if job.transport == SERVER:
        return ParameterServer(job, timeout_s)
    return None
