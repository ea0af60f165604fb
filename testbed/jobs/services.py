"""The process that serves a job's workers, and its address. Pure."""

from __future__ import annotations

from pathlib import Path

from testbed.aggregation.grants import Admission
from testbed.aggregation.system import Layout
from testbed.interpreters import isolated
from testbed.jobs.environment import PS_PORT_BASE, SERVICE_VARIABLE, worker_environment
from testbed.jobs.processes import ProcessSpec
from testbed.jobs.request import JobRequest
from testbed.topology import addresses
from testbed.wire.node_settings import NodeSettings
from testbed.wire.settings import written


def service_address(job: int, layout: Layout) -> tuple[str, int] | None:
    """Return the address and port at which the job's server process listens; None for a job without one."""
    if layout.service is None or layout.server is None:
        return None
    return addresses.host_ip(*layout.server), PS_PORT_BASE + job % 1000


def server_spec(
    job: int,
    layout: Layout,
    request: JobRequest,
    log: Path,
    admission: Admission | None,
    slate_fd: int = -1,
) -> ProcessSpec | None:
    """Describe the process that serves the job's workers; None for a job without one. It reports its progress
    in `slate_fd` (testbed/wire/service_status.py).
    """
    address = service_address(job, layout)
    if address is None or layout.server is None or layout.service is None:
        return None
    host, workers = addresses.host_name(*layout.server), len(layout.workers)
    argv = isolated("-u", "-m", layout.service.module)
    has_owner = layout.forest is not None and layout.forest.owner is not None
    if has_owner:
        assert admission
        argv.append(written(node_settings(layout, admission, address, slate_fd)))
    else:
        argv += ["--bind", address[0], "--port", str(address[1])]
        argv += ["--workers", str(workers), "--job", str(job)]
    env = worker_environment(request.environ, request.caller) | {SERVICE_VARIABLE: str(job)}
    who = f"the {layout.service.name}"
    passed = (slate_fd,) if slate_fd >= 0 and has_owner else ()
    return ProcessSpec(workers, f"{host} ps", who, host, tuple(argv), env, log, passed, serves=True)


def node_settings(
    layout: Layout, admission: Admission, address: tuple[str, int], slate_fd: int
) -> NodeSettings:
    """Make the settings of the process that owns a job's tree."""
    names = tuple(addresses.host_name(*host) for host in layout.workers)
    return NodeSettings(admission.owner_env(), address, names, slate_fd)
