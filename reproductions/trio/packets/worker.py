"""A worker that sums packets of raw integers and times them: `testbed run --sync trio ... worker.py`. The
expected sums are known; a wrong one ends the worker with exit code 1.

Without `--aged`, all workers sum a vector of `--packets` packets, `--runs` times; a run's time is this
worker's from the first packet's push to the last result. With `--aged`, worker 0 alone pushes the packets
back to back, and each packet has a time, from its push to its result.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import socket
import sys
import time
from pathlib import Path

import numpy as np

from testbed.wire import spec
from testbed.wire.codec import Header
from testbed.wire.rings import RESULT
from testbed.wire.settings import EndpointSettings
from workloads.endpoint import Endpoint
from workloads.job_env import JobEnv

TIMEOUT_S = 60.0
BETWEEN_S = 0.05
"""Pause between two runs of packets that age out, and between two checks for worker 0's result file."""
POLL_S = 0.00002
PR_SET_TIMERSLACK = 29  # linux/prctl.h


def meet(endpoint: Endpoint, workers: int) -> None:
    """Wait until `workers` workers contribute to one sum, so that all begin together. A degraded sum lacks
    late workers; it tells all workers how many contributed, and all try again.
    """
    contributors = 0
    while contributors < workers:
        endpoint.submit_lanes(np.ones(1, np.uint32))
        contributors = endpoint.finish().contributors


def streams(endpoint: Endpoint, job: JobEnv, packets: int, runs: int) -> list[float]:
    """Sum the vector `runs` times, and return each run's seconds. ValueError for a wrong sum."""
    assert job.endpoint
    size = packets * job.endpoint.lanes
    pattern = np.arange(size, dtype=np.uint32) % 1009
    total = job.world_size * (job.world_size + 1) // 2
    times = []
    for run in range(runs):
        vector = np.ascontiguousarray(pattern * (job.rank + 1), np.uint32)
        meet(endpoint, job.world_size)
        begin_s = time.monotonic()
        endpoint.submit_lanes(vector)
        endpoint.finish()
        times.append(time.monotonic() - begin_s)
        if not np.array_equal(vector, pattern * total):
            raise ValueError(f"worker {job.rank}: the sum of run {run} is wrong")
    return times


def ages(job: JobEnv, packets: int, runs: int) -> list[float]:
    """Push packets to which no other worker contributes, and return each packet's seconds. The packets are
    made here, because an endpoint's packets follow a vote, which ages out too. ValueError for a wrong sum.
    """
    assert job.endpoint
    settings = job.endpoint
    lanes, address = settings.lanes, settings.trees[0].address
    ring = _ring(settings)
    times = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for run in range(runs):
            first = run * packets
            datagrams = [_push(settings, block, lanes) for block in range(first, first + packets)]
            pushed_s = []
            for datagram in datagrams:
                pushed_s.append(time.monotonic())
                udp.sendto(datagram, (address, spec.UDP_PORT))
            arrived_s = _results(ring, first, packets)
            times += [after - before for before, after in zip(pushed_s, arrived_s, strict=True)]
            for block in range(first, first + packets):
                result = ring[block]
                if result["contributors"] != 1 or not (result["lanes"][:lanes] == block + 1).all():
                    raise ValueError(f"worker {job.rank}: the sum of packet {block} is wrong")
            time.sleep(BETWEEN_S)
    return times


def _ring(settings: EndpointSettings) -> np.ndarray:
    """Return the array of results in the memory that the host's program writes."""
    kind = RESULT.dtype(settings.ring_lanes)
    count = settings.ring_entries
    size = -(-kind.itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(settings.ring_fd, size), kind, count)


def _push(settings: EndpointSettings, block: int, lanes: int) -> bytes:
    header = Header(
        op=spec.Op.PUSH,
        job=settings.job,
        worker=settings.sender,
        contributors=1,
        generation=settings.generation,
        slot=block,
        fragment=block,
        count=lanes,
        lanes=lanes,
    )
    return header.pack() + np.full(lanes, block + 1, ">u4").tobytes()


def _results(ring: np.ndarray, first: int, count: int) -> list[float]:
    """Poll the results of `count` packets, and return when each was first seen: never before it arrived, and
    at most POLL_S plus this machine's delays later. ValueError where one does not arrive within TIMEOUT_S.
    """
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # the default slack makes sleeps 50 us longer
    arrived_s = [0.0] * count
    deadline_s = time.monotonic() + TIMEOUT_S
    while not all(arrived_s):
        sequences = ring["sequence"][first : first + count].copy()
        now_s = time.monotonic()  # after the copy: this process may have waited for a core in between
        if now_s > deadline_s:
            raise ValueError(f"no result of packet {first + arrived_s.index(0.0)} in {TIMEOUT_S:g} s")
        for packet in range(count):
            if not arrived_s[packet] and sequences[packet] == first + packet + 1:
                arrived_s[packet] = now_s
        time.sleep(POLL_S)
    return arrived_s


def result_of(out: Path, rank: int) -> Path:
    """Return the path of a worker's results."""
    return out.with_name(f"{out.name}.{rank}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Sum packets of raw integers, and time them.")
    parser.add_argument("--packets", type=int, required=True, metavar="N", help="of a run")
    parser.add_argument("--runs", type=int, required=True, metavar="N")
    parser.add_argument("--aged", action="store_true", help="worker 0 pushes, and nobody else")
    parser.add_argument("--out", type=Path, required=True, help="results of each worker: FILE.RANK, as JSON")
    options = parser.parse_args()
    job = JobEnv.from_environ()
    try:
        if not options.aged:
            assert job.endpoint
            endpoint = Endpoint(job.endpoint, job.board, TIMEOUT_S)
            times = streams(endpoint, job, options.packets, options.runs)
            endpoint.close()
        elif job.rank == 0:
            times = ages(job, options.packets, options.runs)
        else:
            times = []
            while not result_of(options.out, 0).exists():
                time.sleep(BETWEEN_S)  # stay until worker 0 is done: a job fails if a worker ends early
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    result_of(options.out, job.rank).write_text(json.dumps({"seconds": times}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
