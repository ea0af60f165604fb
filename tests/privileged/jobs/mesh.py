"""Sums of all groups of a mesh of two rows at once, compared with gloo's; groups made repeatedly; groups
without room. The arguments are the cases. Prints `mesh: NAME: ok` on each worker.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from testbed.wire import spec
from testbed.wire.codec import Header
from testbed.wire.settings import EndpointSettings
from workloads import backend

TURNS = int(os.environ.get("TURNS", "5"))
STOPPED_S = 2.0
MORE = 8  # two more than fit in the slots for groups
LENGTHS = (1, 359, 7001, 100_003)
CASES: dict[str, Callable[[], None]] = {}


def case(check: Callable[[], None]) -> Callable[[], None]:
    CASES[check.__name__] = check
    return check


def integers(length: int, rank: int, turn: int) -> torch.Tensor:
    """Return floats whose sums are exact in fp32 and with one power of two."""
    generator = torch.Generator().manual_seed(1000 * turn + 10 * rank + length)
    return torch.randint(-1009, 1010, (length,), generator=generator).float()


@case
def all_at_once() -> None:
    """Sum in the world, a row and a column at once; expect exact sums."""
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("row", "column"))
    groups = [None, mesh.get_group("row"), mesh.get_group("column")]
    rank = dist.get_rank()
    for turn, length in enumerate(LENGTHS):
        vectors = [integers(length, rank, turn) for _ in groups]
        works = [
            dist.all_reduce(vector, group=group, async_op=True)
            for vector, group in zip(vectors, groups, strict=True)
        ]
        for vector, group, work in zip(vectors, groups, works, strict=True):
            work.wait()
            members = range(dist.get_world_size()) if group is None else dist.get_process_group_ranks(group)
            expected = sum(integers(length, member, turn) for member in members)
            assert torch.equal(vector, expected), (length, group and list(members))


@case
def small_and_uneven() -> None:
    """Sum means, half floats, and values that gloo and the network round alike, in groups of two."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    rank = dist.get_rank()
    own = pairs[rank // 2]
    mean = torch.tensor([1.0 + rank])
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=own)
    assert mean.item() == 1.5 + 2 * (rank // 2)
    half = torch.full((1003,), 1.0 + rank, dtype=torch.float16)
    dist.all_reduce(half, group=own)
    assert (half == 3.0 + 4 * (rank // 2)).all()
    broken = torch.tensor([float("nan") if rank == 0 else 1.0, 1.0])
    dist.all_reduce(broken, group=own)
    assert broken.isnan().tolist() == [rank < 2, False]
    whole = torch.ones(1003)
    dist.all_reduce(whole)
    assert (whole == 4).all()


@case
def made_again() -> None:
    """Make and destroy a group repeatedly: its slots are free again for the next."""
    before = descriptors()
    for turn in range(TURNS):
        evens, odds = dist.new_group([0, 2]), dist.new_group([1, 3])
        mine = evens if dist.get_rank() % 2 == 0 else odds
        vector = torch.full((1003,), float(turn))
        dist.all_reduce(vector, group=mine)
        assert (vector == 2 * turn).all()
        dist.destroy_process_group(mine)
    assert descriptors() <= before, (descriptors() - before, before)


def descriptors() -> Counter[str]:
    """Count this process's open rings, boards and events, by kind. Gloo's pipes and sockets do not count:
    torch keeps those of the group that was destroyed last.
    """
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    ours = [link for link in links if any(kind in link for kind in ("bpf-map", "job-board", "eventfd"))]
    return Counter(re.sub(r"[0-9]+", "", link) for link in ours)


@case
def more_than_fit() -> None:
    """Make groups until there is no room, and more: all can sum. Then do the same again."""
    for _ in range(2):
        groups = [dist.new_group([0, 1]) for _ in range(MORE)]
        for number, group in enumerate(groups) if dist.get_rank() < 2 else ():
            vector = torch.full((1003,), float(number))
            dist.all_reduce(vector, group=group)
            assert (vector == 2 * number).all()
            dist.destroy_process_group(group)


@case
def intruded() -> None:
    """A worker that is no member sends in a group's tree, as itself and as a member, while the group sums."""
    pair, rank = dist.new_group([2, 3]), dist.get_rank()
    mine = [newest_endpoint() if rank == 2 else None]
    dist.broadcast_object_list(mine, src=2)
    settings = mine[0]
    assert settings is not None
    if rank == 0:
        way = settings.trees[0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            for number in range(300):
                header = Header(
                    op=spec.Op.PUSH,
                    tree=settings.first_tree,
                    job=settings.job,
                    worker=(0, 2, 3)[number % 3],
                    contributors=1,
                    generation=settings.generation,
                    slot=way.slot_base + number % settings.slots,
                    fragment=number // 3,
                    count=settings.lanes,
                    lanes=settings.lanes,
                )
                lanes = bytes([number % 250 + 1]) * 4 * settings.lanes
                udp.sendto(header.pack() + lanes, (way.address, settings.port))
    elif rank > 1:
        for turn in range(20):
            vector = torch.full((7001,), float(turn))
            dist.all_reduce(vector, group=pair)
            assert (vector == 2 * turn).all()
    dist.barrier()


def newest_endpoint() -> EndpointSettings:
    """Return the endpoint settings of this worker's newest group."""
    groups = [each._job.endpoint for each in gc.get_objects() if isinstance(each, backend.GroupSums)]
    endpoints = [endpoint for endpoint in groups if endpoint is not None]
    return max(endpoints, key=lambda endpoint: endpoint.generation)


@case
def one_ends() -> None:
    """A worker of a column is killed while the column sums; the others' errors name it."""
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    vector = torch.ones(200_003)
    for turn in range(8):
        work = dist.all_reduce(vector, group=columns[dist.get_rank() % 2], async_op=True)
        if dist.get_rank() == 2 and turn == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        work.wait()


@case
def one_ends_gathering() -> None:
    """A worker is killed while all of them gather; the others' errors name it."""
    mine, whole = integers(40_009, dist.get_rank(), 0), torch.zeros(40_009 * dist.get_world_size())
    for turn in range(8):
        work = dist.all_gather_into_tensor(whole, mine, async_op=True)
        if dist.get_rank() == 2 and turn == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        work.wait()


@case
def one_stops() -> None:
    """Stop a worker for a while during a gather of the world and a sum of a pair."""
    rank, workers = dist.get_rank(), dist.get_world_size()
    members = [2, 2 + workers // 2]
    pair = dist.new_group(members)
    for turn in range(4):
        vector, mine = integers(100_003, rank, turn), integers(40_009, rank, turn)
        whole = torch.zeros(workers * 40_009)
        works = [dist.all_gather_into_tensor(whole, mine, async_op=True)]
        if rank in members:
            works.append(dist.all_reduce(vector, group=pair, async_op=True))
        if rank == 2 and turn == 2:
            subprocess.Popen(["sh", "-c", f"sleep {STOPPED_S}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        for work in works:
            work.wait()
        expected = sum(integers(100_003, each, turn) for each in (members if rank in members else [rank]))
        assert torch.equal(vector, expected)
        assert torch.equal(whole, torch.cat([integers(40_009, each, turn) for each in range(workers)]))


def main() -> None:
    dist.init_process_group("inc")
    for name in sys.argv[1:]:
        CASES[name]()
        print(f"mesh: {name}: ok", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
