"""The ways to sum a binary32 vector over the workers of a job: in the network, or at a parameter server.

Vectors come in the same order on all workers; `submit` is called by one thread at a time, `finish` by one.
The ring needs no reducer: gloo does it.
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
        """Gives a vector to be replaced by its sum over all workers."""

    def finish(self) -> Outcome:
        """Wait for the oldest vector submitted and not finished, and say who is in its sum; raise what went
        wrong with it.
        """

    def counters(self) -> dict[str, float]:
        """Return the numbers of what it did, for the job's statistics."""


class InNetwork:
    """The aggregation protocol. A job's own is used by its endpoint alone, without `submit` and `finish`; of
    a class that is derived from this they are called.
    """

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        from workloads.endpoint import Endpoint

        assert job.endpoint is not None
        self._endpoint = Endpoint(job.endpoint, job.board, timeout_s)
        self.close = self._endpoint.close
        self.submit = self._endpoint.submit
        self.finish = self._endpoint.finish

        self.heard = self._endpoint.heard
        self.is_broken = self._endpoint.is_broken
        self.endpoint = self._endpoint.addresses

    def heed(self, check: Callable[[], None]) -> None:
        """Have a silence ended by what this raises, a RuntimeError: the workers do not ask for the same."""
        self._endpoint.check = check

    def set_timeout(self, timeout_s: float) -> None:
        """Have vectors that are submitted from now on wait so long for a result."""
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
    """A parameter server on a host, over TCP."""

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        from workloads.ps_client import PsClient

        if job.ps is None:
            raise ValueError(f"job {job.job_id}: it has no parameter server")
        self._client = PsClient(job.ps, job.rank, job.world_size, timeout_s)
        self._workers = job.world_size
        self.submit = self._client.submit
        self.set_timeout = self._client.set_timeout

    def finish(self) -> Outcome:
        """Wait for the oldest vector. A server has the sum of all, or none."""
        self._client.finish()
        return Outcome.whole(self._workers)

    def counters(self) -> dict[str, float]:
        return {}


def reducer_for(job: JobEnv, timeout_s: float) -> Reducer | None:
    """The reducer by which the job's workers speak: a user's own system may bring one, by its method
    `reducer(job, timeout_s)`. None where gloo does it all.
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
