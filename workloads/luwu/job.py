"""A worker's way to the optimizer node of its job, where the testbed runs one.

Imports torch, and of the project the job's environment and the node's parts.
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
_CONNECT_S = 60.0  # the node's process starts beside the workers', and imports torch


def connector(nic: str, detect_ms: float | None) -> Callable[[Opening], Distant] | None:
    """Return what connects to the job's optimizer node; None for a process whose job has none, or that is in
    no job. `nic` is one of NICS.
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
        # a socket of this address gets what XDP hands on: results of the job have no other receiver here
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
        functools.partial(_leave_facts, job, opening.seen),
    )
    atexit.register(distant.close)  # the node serves until all have closed
    return distant


def _leave_facts(job: JobEnv, seen: Seen | None, facts: Facts) -> None:
    """Leave what the NIC did, and what the script asked for, for the job's result."""
    timeline = {} if seen is None else {"timeline": seen.summary()}
    try:
        job.write_stats({"rank": job.rank, "nic": asdict(facts), **timeline})
    except OSError as error:  # the training itself is done
        print(f"the result lacks this worker's statistics: {error.strerror}", file=sys.stderr)


def _own_ip(node: tuple[str, int]) -> str:
    """Return this host's address on the way to the node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(node)
        return str(probe.getsockname()[0])


def _connected(job: JobEnv, node: str) -> socket.socket:
    """Wait until the node listens. Raises LuwuError where it does not, or has ended."""
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
