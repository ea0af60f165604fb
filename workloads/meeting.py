"""Report the making of a worker's process group to the job board.

Torch calls no backend before all workers have met at its store, and never calls `inc` where the script
chooses another backend. So `see` replaces the function by which `init_process_group` meets with one that
reports to the board and calls torch's.

This module must load fast: it is installed at `import torch`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from workloads import waiting
from workloads.job_env import JobEnv, NotInJobError


class WorldSizeError(ValueError):
    """The script asks for a process group of another size than its job has workers."""

    def __init__(self, world: int, workers: int) -> None:
        super().__init__(
            f"world_size {world} does not fit this job's {workers} workers: leave it to the environment, or "
            f"place {world} workers; a group of some of the workers is made by torch.distributed.new_group"
        )


def see(c10d: Any) -> None:
    """Wrap the rendezvous of the module torch.distributed.distributed_c10d, so that the board learns of every
    `init_process_group` from now on.
    """
    original = c10d.rendezvous

    @functools.wraps(original)
    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **settings: Any) -> Iterator[Any]:
        return _meeting(original(url, rank, world_size, **settings), url, rank, world_size)

    c10d.rendezvous = rendezvous


def _meeting(steps: Iterator[Any], url: str, rank: int, world_size: int) -> Iterator[Any]:
    """Yield what torch's own rendezvous yields; report to the board when the wait begins and when the workers
    have met.

    Raises WorldSizeError where the group has the job's address but not its size.
    """
    try:
        job = JobEnv.from_environ()
    except NotInJobError:  # a process that a worker started, or one outside a job
        yield from steps
        return
    is_jobs = urlsplit(url).scheme == "env"
    size = _size(url, world_size, is_jobs)
    if is_jobs and size is not None:
        check_size(job, size)
    if size == job.world_size:
        job.board.meet()
    waiting.say_meets(place(job, url, rank, size))
    try:
        first = next(steps)
    except BaseException:
        job.board.part()
        waiting.say_meets("")
        raise
    if size == job.world_size:
        job.board.met()
    yield first
    yield from steps


def place(job: JobEnv, url: str, rank: int, size: int | None) -> str:
    """Return the address at which a worker waits for its process group, and how the script made it differ
    from the job's: another address, port, rank or size.
    """
    parts, (job_address, _, job_port) = urlsplit(url), job.master.partition(":")
    set_by = {"env": "set MASTER_ADDR to", "tcp": "named"}.get(parts.scheme)
    if parts.scheme == "env":
        address, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    else:
        address, port = parts.hostname or "", parts.netloc.rpartition(":")[2]
    did = []
    if set_by and job_address and address != job_address:
        did.append(f"{set_by} {address} (the job's is {job_address})")
    elif parts.scheme == "env" and job_port and port != job_port:
        did.append(f"set MASTER_PORT to {port} (the job's is {job_port})")
    word = os.environ.get("RANK", "") if parts.scheme == "env" else ""
    taken = rank if rank >= 0 else int(word) if word.isdecimal() else job.rank
    if taken != job.rank:
        did.append(f"took rank {taken} (its own is another)")
    if size not in (None, job.world_size):
        did.append(f"asked for a group of {size} (the job has {job.world_size} workers)")
    at = f"{address}:{port}" if set_by else url
    return f"{at}, since the script {' and '.join(did)}" if did else at


def check_size(job: JobEnv, size: int) -> None:
    """Record a process group's size on the board, and raise WorldSizeError where it is not the job's number
    of workers.
    """
    job.board.wants(size)
    if size != job.world_size:
        raise WorldSizeError(size, job.world_size)


def _size(url: str, world_size: int, is_jobs: bool) -> int | None:
    """Return the size of the requested group; None where torch has yet to learn it."""
    if world_size >= 0:
        return world_size
    words = parse_qs(urlsplit(url).query).get("world_size") or [os.environ.get("WORLD_SIZE", "")] * is_jobs
    return int(words[0]) if words and words[0].isdecimal() else None
