"""Make the torch.distributed backend `inc` for a process group.

The job's reducer sums and averages floats. If it is the network's, the network also carries gather, broadcast
and scatter collectives at the sizes at which it is faster. Gloo does everything else. The compiled part
(workloads/native/backend.cpp; docs/backend.md says why) receives torch's calls. This module decides what a
process group gets: the job's own sums, sums of a further group, or gloo alone.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from testbed.wire.calls import Tables
from testbed.wire.transports import PACKETS
from workloads import call_circuits, groups, waiting
from workloads.collectives import c10d
from workloads.job_env import JobEnv, Part, own_settings
from workloads.meeting import check_size
from workloads.reducers import InNetwork
from workloads.sums import Sums, ledger, native


class GroupSums(Sums):
    """The sums of a group that the script makes in addition to its job's own, by trees of the group's own."""

    def __init__(self, membership: groups.Membership, timeout_s: float) -> None:
        assert membership.job is not None
        settings = membership.job.endpoint
        assert settings is not None
        try:
            super().__init__(membership.job, timeout_s, is_whole=False)
        finally:
            for fd in (
                settings.ring_fd,
                settings.wake_fd,
            ):  # their memory stays mapped without them
                os.close(fd)
        self._key = membership.key

    def shutdown(self) -> None:
        """End the group's sums and release its places; the testbed frees these when all members have left,
        since others may still need a result.

        Torch calls this when the group is destroyed, or when the process ends.
        """
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        super().shutdown()
        if thread.is_alive():  # it still waits for other workers
            return
        atexit.unregister(self._end)
        if isinstance(self._reducer, InNetwork):
            self._reducer.close()
            self.course.leave_board()
            assert isinstance(self._job.board, Part)
            self._job.board.close()
            assert self._job.groups is not None
            groups.desk(self._job.groups).leave(self._key)

    def _write_statistics(self) -> None:
        """Add the endpoint's counters to the ledger; the job's own group writes them."""
        if self._reducer:
            ledger.count(self._reducer.counters())


_sums: Sums | None = None


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Make the backend for `init_process_group("inc")`. Raises NotInJobError outside a job, WorldSizeError if
    the script's first group has not the job's size.

    The first group of all workers is the job's own; after its end the next one of all workers takes its
    place. Groups made while any of their workers still has the job's own group, and groups of some of the
    workers, sum by trees of their own where the testbed admits them, else by gloo.
    """
    global _sums
    job = JobEnv.from_environ()
    if _sums:  # the process maps the board once
        job = dataclasses.replace(job, board=_sums.board)
    # each sum thread gets its own connection to the store: a thread that waits on a connection blocks it for
    # all others, and the threads of several groups may wait for each other's workers
    own_store = store.clone()

    def gloo(name: str) -> Any:
        return c10d.ProcessGroupGloo(c10d.PrefixStore(name, store), rank, size, timeout)

    def exact() -> Any:
        return c10d.ProcessGroupGloo(c10d.PrefixStore("inc-exact", own_store), rank, size, timeout)

    if not dist.is_initialized():  # the script's default group, of all workers
        check_size(job, size)
    is_up = bool(_sums and _sums.is_up)
    may_be_first = size == job.world_size and not is_up
    if may_be_first:
        job.board.meet()
    try:
        if may_be_first and _sums is None:  # before any wait, so that a refused endpoint fails at once
            _sums = Sums(job, timeout.total_seconds())
        common = gloo("inc-gloo")
        members = _exchange_members(common, is_up, job.rank)
        order = _order(job, members, rank)
        if size != job.world_size or members.any_is_up:
            if may_be_first:
                job.board.part()
            if _sums:
                _sums.stands_beside_another()
            return _with_circuits(_further_group(job, common, exact, members, order, timeout), members)
        assert _sums is not None
    except BaseException:
        if may_be_first:
            job.board.part()
        raise
    _sums.begin(common, exact, order)
    return _with_circuits(native.IncBackend(common, _sums, order=order), members)


def _with_circuits(backend: Any, members: _Members) -> Any:
    """Let the job's policy of circuits see the calls of a group, if the job has one."""
    circuits = call_circuits.of_worker(own_settings())
    if circuits is not None and len(members.ranks) > 1:
        backend.ask_for_circuits(circuits.before_in(members.ranks), circuits.fd)
    return backend


@dataclasses.dataclass(frozen=True, slots=True)
class _Members:
    """The members of a new group: their ranks in the job, whether any of them has the job's own group now,
    and a random word that identifies the group within the job.
    """

    ranks: tuple[int, ...]
    any_is_up: bool
    word: int


def _exchange_members(gloo: Any, is_up: bool, rank: int) -> _Members:
    """Exchange ranks and states among the members of a new group.

    Each knows its own groups only, but all must agree on whether the new group is the job's own. The random
    word is that of the group's first member.
    """
    mine = np.array([int(is_up), rank, secrets.randbits(62)], np.int64)
    rows = np.empty((gloo.size(), len(mine)), np.int64)
    # a group may be made in a mode in which torch's tensors have no memory (meta device, fake, local)
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        gloo.allgather([[torch.from_numpy(row) for row in rows]], [torch.from_numpy(mine)]).wait()
    return _Members(tuple(map(int, rows[:, 1])), bool(rows[:, 0].any()), int(rows[0, 2]))


def _order(job: JobEnv, members: _Members, member: int) -> Any:
    """Make the object that compares the members' calls by their order; None where the board has no tables of
    calls.
    """
    tables = job.board.calls
    if tables is None:
        return None
    why = functools.partial(waiting.explained, Tables(tables), members.ranks)
    return native.Order(tables.ctypes.data, list(members.ranks), member, members.word, why)


def _further_group(
    job: JobEnv,
    common: Any,
    exact: Callable[[], Any],
    members: _Members,
    order: Any,
    timeout: timedelta,
) -> Any:
    """Make the backend of a group that is not the job's own."""
    tally = native.Tally()
    if job.transport != PACKETS or common.size() < 2:
        return native.IncBackend(common, None, tally, order=order)
    membership = groups.enter(job, members.word, common.size())
    if membership.job is None:
        ledger.add(membership.ranks, Counter, tally)
        return native.IncBackend(common, None, tally, order=order)
    try:
        sums = GroupSums(membership, timeout.total_seconds())
    except BaseException:  # the others notice when this worker ends; its places are released before
        assert job.groups is not None
        groups.desk(job.groups).leave(membership.key)
        raise
    ledger.add(membership.ranks, sums.summed, tally)
    sums.begin(common, exact, order)
    return native.IncBackend(common, sums, tally, order)


def rounds() -> bool:
    """Return whether the job's sums round gradients to integers."""
    return _sums is not None and _sums.rounds


def record() -> Any:
    """Return the record of which workers contributed to this worker's sums so far."""
    return _sums.record if _sums else native.Record()


def stands_beside_another() -> None:
    """Mark the sums' timeline as incomplete, because the script's process group is of another backend: no
    bound is made from it.
    """
    if _sums:
        _sums.stands_beside_another()
