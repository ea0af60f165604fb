"""The torch.distributed backend `inc`: sums and averages of floats by the job's reducer, large gathered,
broadcast and scattered tensors as well where it is the network's, everything else by gloo.

What torch calls is compiled (workloads/native/backend.cpp; docs/backend.md says why). Here is what a process
group gets of it: the job's own sums, sums of a group beside the first, or gloo alone.
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
from workloads import groups, waiting
from workloads.collectives import c10d
from workloads.job_env import JobEnv, Part
from workloads.meeting import check_size
from workloads.reducers import InNetwork
from workloads.sums import Sums, ledger, native


class GroupSums(Sums):
    """The sums of a group that the script made beside its first, by trees of the group's own."""

    def __init__(self, membership: groups.Membership, timeout_s: float) -> None:
        assert membership.job is not None
        settings = membership.job.endpoint
        assert settings is not None
        try:
            super().__init__(membership.job, timeout_s, is_whole=False)
        finally:
            for fd in (settings.ring_fd, settings.wake_fd):  # they are mapped, and go with that
                os.close(fd)
        self._key = membership.key

    def shutdown(self) -> None:
        """End it, and let go of its places, of which other members may need something still: they are free
        when all have left. Called by torch when the group is destroyed, or at the process's end.
        """
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        super().shutdown()
        if thread.is_alive():  # it waits for others still
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
        """Leave it to the job's own group to tell what it summed."""
        if self._reducer:
            ledger.count(self._reducer.counters())


_sums: Sums | None = None


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """The backend for `init_process_group("inc")`. Raises NotInJobError outside a job, WorldSizeError for a
    world of another size than the job.

    The first group of all workers is the job's; after its end the next one of all workers takes its place.
    Groups made while any of its workers has it, and those of some of the workers, sum by trees of their own
    where the testbed admits them, else by gloo.
    """
    global _sums
    job = JobEnv.from_environ()
    if _sums:  # the process has one mapping of the board
        job = dataclasses.replace(job, board=_sums.board)
    # a thread of sums has a connection of its own to the store: who waits by one keeps it from all others,
    # and threads of several groups may wait for each other's workers
    apart = store.clone()

    def gloo(name: str) -> Any:
        return c10d.ProcessGroupGloo(c10d.PrefixStore(name, store), rank, size, timeout)

    def exact() -> Any:
        return c10d.ProcessGroupGloo(c10d.PrefixStore("inc-exact", apart), rank, size, timeout)

    if not dist.is_initialized():  # the script's own, of all workers
        check_size(job, size)
    is_up = bool(_sums and _sums.is_up)
    may_be_first = size == job.world_size and not is_up
    if may_be_first:
        job.board.meet()
    try:
        if may_be_first and _sums is None:  # an endpoint that is refused waits for nobody
            _sums = Sums(job, timeout.total_seconds())
        common = gloo("inc-gloo")
        members = _introduced(common, is_up, job.rank)
        order = _order(job, members, rank)
        if size != job.world_size or members.any_is_up:
            if may_be_first:
                job.board.part()
            if _sums:
                _sums.stands_beside_another()
            return _beside(job, common, exact, members, order, timeout)
        assert _sums is not None
    except BaseException:
        if may_be_first:
            job.board.part()
        raise
    _sums.begin(common, exact, order)
    return native.IncBackend(common, _sums, order=order)


@dataclasses.dataclass(frozen=True, slots=True)
class _Members:
    """The members of a new group: their ranks in the job, whether any of them has a first group, and a random
    word that no other group of the job has.
    """

    ranks: tuple[int, ...]
    any_is_up: bool
    word: int


def _introduced(gloo: Any, is_up: bool, rank: int) -> _Members:
    """Have the members of a group tell each other who they are: each knows of its own groups alone, and all
    must take the same for the first.
    """
    mine = np.array([int(is_up), rank, secrets.randbits(62)], np.int64)
    rows = np.empty((gloo.size(), len(mine)), np.int64)
    # a group may be made where torch has its tensors be none of memory: on the device meta, fake, or local
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        gloo.allgather([[torch.from_numpy(row) for row in rows]], [torch.from_numpy(mine)]).wait()
    return _Members(tuple(map(int, rows[:, 1])), bool(rows[:, 0].any()), int(rows[0, 2]))


def _order(job: JobEnv, members: _Members, member: int) -> Any:
    """Return the order of a group's calls, in which its workers are compared; None where there is no board
    for that.
    """
    tables = job.board.calls
    if tables is None:
        return None
    why = functools.partial(waiting.explained, Tables(tables), members.ranks)
    return native.Order(tables.ctypes.data, list(members.ranks), member, members.word, why)


def _beside(
    job: JobEnv,
    common: Any,
    exact: Callable[[], Any],
    members: _Members,
    order: Any,
    timeout: timedelta,
) -> Any:
    """Return the backend of a group beside the first."""
    tally = native.Tally()
    if job.transport != PACKETS or common.size() < 2:
        return native.IncBackend(common, None, tally, order=order)
    membership = groups.enter(job, members.word, common.size())
    if membership.job is None:
        ledger.add(membership.ranks, Counter, tally)
        return native.IncBackend(common, None, tally, order=order)
    try:
        sums = GroupSums(membership, timeout.total_seconds())
    except BaseException:  # the others are told by this worker's end, and its places are free by then
        assert job.groups is not None
        groups.desk(job.groups).leave(membership.key)
        raise
    ledger.add(membership.ranks, sums.summed, tally)
    sums.begin(common, exact, order)
    return native.IncBackend(common, sums, tally, order)


def rounds() -> bool:
    """Return whether the job's sums are of integers, to which gradients are rounded."""
    return _sums is not None and _sums.rounds


def record() -> Any:
    """Return the account of who was in this worker's sums so far."""
    return _sums.record if _sums else native.Record()


def stands_beside_another() -> None:
    """The script has a process group of another kind: the sums' timeline is no bound's."""
    if _sums:
        _sums.stands_beside_another()
