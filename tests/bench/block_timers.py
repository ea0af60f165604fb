"""The cost of the timers of block records: of scanning a table of 65,536 records, and the share of a CPU that
it takes, by timeout, by number of timers, and with and without waiting records.

`python -m tests.bench.block_timers [--json FILE]`. The table is plain memory; no XDP program uses it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from testbed.systems.trio.contract import BLOCK, BUCKET, BUCKET_RECORD, MOST_BUCKETS
from testbed.systems.trio.xdp.timers import MappedTable, Timers
from testbed.wire import spec
from tests.bench.host import facts
from tests.vectors.blocks import job, terms

SECONDS, LANES, RECORD, SERIAL = 1.0, 64, 0, 1


def measured(timeout_ms: float, timers: int, waiting: bool) -> dict[str, float]:
    """Run timers for SECONDS. Return ns per bucket, scans of the whole table per timeout, the share of a CPU,
    and how late the thread woke at most.
    """
    kinds = (BUCKET_RECORD.dtype(), MOST_BUCKETS), (BLOCK.dtype(LANES), BUCKET * MOST_BUCKETS)
    fds, views = [], []
    for kind, count in kinds:
        fd = os.memfd_create("table")
        os.truncate(fd, -(-kind.itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE)
        fds.append(fd)
        views.append(np.frombuffer(mmap.mmap(fd, 0), kind, count))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    kept = Timers(MappedTable(*fds, MOST_BUCKETS, BLOCK.dtype(LANES).itemsize), 1, ours, timers)
    try:
        kept.set(RECORD, SERIAL, 1, job(2, lanes=LANES, terms=terms(age_out_ms=timeout_ms)))
        changes, ends, before = 0, time.monotonic() + SECONDS, kept.counts()
        began = time.monotonic()
        while time.monotonic() < ends:
            if waiting:  # renew the records so that none ages out: sending ticks would be another cost
                changes += 1
                views[0]["marks"] = changes
            time.sleep(timeout_ms / 3e3)
        seconds, after = time.monotonic() - began, kept.counts()
    finally:
        kept.close()
        theirs.close()
        for fd in fds:
            os.close(fd)
    visited, busy_ns = after.visited - before.visited, after.busy_ns - before.busy_ns
    return {
        "ns_a_bucket": busy_ns / visited,
        "visits_in_a_timeout": visited / MOST_BUCKETS / seconds * timeout_ms / 1e3,
        "share_of_a_cpu": busy_ns / 1e9 / seconds,
        "late_ms_most": after.late_ns_most / 1e6,
        "ticks": float(after.ticks + after.unsent),
    }


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.block_timers", description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    rows = {}
    for timeout_ms in (1.0, 10.0, 100.0):
        for timers in (1, 16, 100):
            for waiting in (False, True):
                name = f"{timeout_ms:g} ms, {timers} timers, {'all waiting' if waiting else 'none waiting'}"
                rows[name] = row = measured(timeout_ms, timers, waiting)
                print(
                    f"{name:<34} {row['ns_a_bucket']:7.1f} ns a bucket, {row['visits_in_a_timeout']:.2f} "
                    f"visits a timeout, {row['share_of_a_cpu']:.2%} of a CPU, {row['late_ms_most']:.2f} ms "
                    f"late, {row['ticks']:.0f} ticks"
                )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps({"host": facts(), "lanes": spec.LANES, "timers": rows}, indent=2) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
