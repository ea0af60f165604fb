"""The services of a job, beside its workers: the process of a parameter server, and where it listens.
Pure.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.aggregation.system import Layout
from testbed.contract.transports import SERVER
from testbed.jobs.environment import PS_PORT_BASE, worker_environment
from testbed.jobs.processes import ProcessSpec
from testbed.jobs.request import JobRequest
from testbed.topology import addresses


def ps_address(job: int, layout: Layout) -> tuple[str, int] | None:
    """Return where the parameter server of the job of that number listens; None for a job that sums
    otherwise.
    """
    if layout.transport != SERVER or layout.server is None:
        return None
    return addresses.host_ip(*layout.server), PS_PORT_BASE + job % 1000


def server_spec(job: int, layout: Layout, request: JobRequest, log: Path) -> ProcessSpec | None:
    """Return the parameter server's process; None for a job that sums otherwise."""
    address = ps_address(job, layout)
    if address is None or layout.server is None:
        return None
    host, workers = addresses.host_name(*layout.server), len(layout.workers)
    argv = [sys.executable, "-u", "-m", "workloads.parameter_server", "--bind", address[0]]
    argv += ["--port", str(address[1]), "--workers", str(workers), "--job", str(job)]
    env = worker_environment(request.environ, request.caller)
    return ProcessSpec(
        workers, f"{host} ps", "the parameter server", host, tuple(argv), env, log, serves=True
    )
