"""The ways to sum a binary32 vector over the workers of a job: in the network, or at a parameter server.

A reducer's calls come from one thread, in the same order on all workers. The ring needs none: gloo does it.
"""

from __future__ import annotations

from typing import Protocol

from workloads.job_env import JobEnv
from workloads.quantiser import Floats


class Reducer(Protocol):
    """Sums vectors over the workers."""

    def allreduce(self, array: Floats) -> None:
        """Replaces a contiguous binary32 vector by its sum over all workers."""

    def counters(self) -> dict[str, int]:
        """What it did, for the job's statistics."""


class InNetwork:
    """The aggregation protocol."""

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        from workloads.endpoint import Endpoint

        self._endpoint = Endpoint(job.engine, job.board, timeout_s)

    def allreduce(self, array: Floats) -> None:
        self._endpoint.allreduce(array)

    def counters(self) -> dict[str, int]:
        counters = self._endpoint.counters
        return {
            "pushed": counters.pushed,
            "retransmits": counters.retransmitted,
            "timeouts": counters.timeouts,
            "wakes": counters.wakes,
        }


class ParameterServer:
    """A parameter server on a host, over TCP."""

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        from workloads.ps_client import PsClient

        if job.ps is None:
            raise ValueError(f"job {job.job_id}: it has no parameter server")
        self._client = PsClient(job.ps, job.rank, job.world_size, timeout_s)

    def allreduce(self, array: Floats) -> None:
        self._client.allreduce_(array)

    def counters(self) -> dict[str, int]:
        return {}


def reducer_for(job: JobEnv, timeout_s: float) -> Reducer | None:
    """The reducer that the job's `sync` asks for; None for the ring."""
    if job.sync == "inc":
        return InNetwork(job, timeout_s)
    if job.sync == "ps":
        return ParameterServer(job, timeout_s)
    return None
