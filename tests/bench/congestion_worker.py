"""A worker of tests/bench/congestion.py: sum vector after vector, several under way, between two times that
all workers are given.

Prints "ready"; then reads a line with two times of CLOCK_MONOTONIC in seconds: when counting begins, and when
to end. All workers end after the same vector: a worker past the second time adds one to the vector's first
element. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from testbed.wire.settings import EndpointSettings, read
from tests.privileged.summing_worker import Alone
from workloads import endpoint

UNDER_WAY = 4
COUNTERS = ("pushed", "retransmitted", "timeouts", "window_sum", "window_samples", "marked", "rtt_us")


def main() -> None:
    own, settings = read(EndpointSettings, sys.argv[1]), json.loads(sys.argv[2])
    if settings["library"]:
        endpoint._LIBRARY = Path(settings["library"])
    opened = endpoint.Endpoint(own, Alone(), 60.0)  # type: ignore[arg-type]

    def counters() -> dict[str, float]:
        now = opened.counters
        return {name: getattr(now, name) for name in COUNTERS}

    print("ready", flush=True)
    counted_s, end_s = (float(word) for word in sys.stdin.readline().split())
    vectors = [np.empty(settings["bytes"] // 4, np.float32) for _ in range(UNDER_WAY)]
    submitted, is_over = 0, False
    ends: list[float] = []
    first: dict[str, float] | None = None

    while submitted < UNDER_WAY or len(ends) < submitted:
        if not is_over:
            vector = vectors[submitted % UNDER_WAY]
            vector[:] = 1.0
            vector[0] += time.monotonic() >= end_s
            opened.submit(vector)
            submitted += 1
            if submitted < UNDER_WAY:
                continue
        opened.finish()
        vector = vectors[len(ends) % UNDER_WAY]
        assert (vector[1:] == own.workers).all(), "a wrong sum"
        is_over = is_over or vector[0] > own.workers + 0.5
        ends.append(time.monotonic())
        if first is None and ends[-1] >= counted_s:
            first = counters()
    last = counters()
    first = first or last
    print(json.dumps({"ends": ends, "counters": {name: last[name] - first[name] for name in COUNTERS[:-1]}}))


if __name__ == "__main__":
    main()
