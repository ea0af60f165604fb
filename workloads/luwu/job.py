"""Connect a worker to the optimizer node of its job, where the testbed runs one.

Imports torch and, from the project, the job's environment and the node's parts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from testbed.wire.transports import OWNED
from workloads.job_env import VARIABLE, JobEnv
from workloads.luwu.errors import LuwuError
from workloads.luwu.nic import Facts
from workloads.luwu.seen import Seen
from workloads.luwu.sockets import end_of, udp_at
from workloads.luwu.worker import Distant, Opening

NICS: Final = ("process", "host")
_CONNECT_S = 60.0  # the node's process starts together with the workers', and imports torch


def connector(nic: str, detect_ms: float | None) -> Callable[[Opening], Distant] | None:
    """Return a function that connects to the job's optimizer node; None for a process outside a job, or of a
    job without a node.

    `nic` is one of NICS; raises LuwuError for another.
    """
    if nic not in NICS:
        raise LuwuError(f"nic {nic!r}: accepted are {' and '.join(NICS)}")
    if VARIABLE not in os.environ:
        return None
    job = JobEnv.from_environ()
    if job.transport != OWNED:
        return None
    return functools.partial(_connect, job, nic == "host", detect_ms)


def _connect(job: JobEnv, host: bool, detect_ms: float | None, opening: Opening) -> Distant:
    assert job.ps
    assert job.endpoint
    (way,) = job.endpoint.trees
    node = f"the optimizer node on {job.board.service_host}"
    with contextlib.ExitStack() as stack:
        # a socket bound to this address receives what XDP passes on: the job's results have no other receiver
        udp = stack.enter_context(udp_at(_own_ip(job.ps), job.endpoint.port))
        detect_us = None if detect_ms is None else round(1000 * detect_ms)
        tree = end_of(job.endpoint, udp, way.address, job.rank, way.slot_base, detect_us)
        control = stack.enter_context(_connected(job, node))
        stack.pop_all()
    distant = Distant(
        opening,
        tree,
        udp,
        control,
        node,
        host,
        job.board.add_summed,
        functools.partial(_write_statistics, job, opening.seen),
    )
    atexit.register(distant.close)  # the node serves until all workers have closed
    return distant


def _write_statistics(job: JobEnv, seen: Seen | None, facts: Facts) -> None:
    """Write the NIC's counters and the script's timeline as this worker's statistics."""
    timeline = {} if seen is None else {"timeline": seen.summary()}
    try:
        job.write_stats({"rank": job.rank, "nic": asdict(facts), **timeline})
    except OSError as error:  # the training itself is done
        print(f"the result lacks this worker's statistics: {error.strerror}", file=sys.stderr)


def _own_ip(node: tuple[str, int]) -> str:
    """Return this host's address on the route to the node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(node)
        return str(probe.getsockname()[0])


def _connected(job: JobEnv, node: str) -> socket.socket:
    """Connect to the node, retrying for _CONNECT_S until it listens. Raises LuwuError where it does not, or a
    process of the job has ended.
    """
    assert job.ps
    end = time.monotonic() + _CONNECT_S
    while True:
        try:
            return socket.create_connection(job.ps, timeout=_CONNECT_S)
        except OSError as problem:
            if gone := job.board.missing():
                raise LuwuError("; ".join(map(str, gone))) from problem
            if time.monotonic() > end:
                raise LuwuError(f"{node} does not listen: {problem}") from problem
        time.sleep(0.05)
