"""A worker under faults: sum round after round, check every lane, and record when each round's result
arrived.

Prints "ready", and begins when it reads a byte. Prints "first" after the first round. It ends once the given
rounds are done and its input is closed, all workers after the same round: a worker that may end adds one to
the first lane. Then it prints one JSON object: the rounds' ends (CLOCK_MONOTONIC, common to all), how many
were wrong, the endpoint's counters, and the error that ended it, if any.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import sys
import time
from typing import Any

import numpy as np

from testbed.wire import spec
from testbed.wire.settings import EndpointSettings, read
from tests.privileged.summing_worker import Alone
from workloads.endpoint import Endpoint


def is_told_to_end() -> bool:
    """Return whether standard input is at its end."""
    return bool(select.select([0], [], [], 0)[0])


def main() -> None:
    own, settings = read(EndpointSettings, sys.argv[1]), json.loads(sys.argv[2])
    worker, workers, fragments = own.worker, own.workers, settings["fragments"]
    base = [
        np.random.default_rng(other).integers(0, 2**28, (fragments, spec.LANES), dtype=np.uint32)
        for other in range(workers)
    ]
    mine, total = base[worker], np.sum(base, axis=0, dtype=np.uint32)
    report: dict[str, Any] = {"ends": [], "wrong": 0, "error": None, "counters": {}}
    endpoint = None
    print("ready", flush=True)
    os.read(0, 1)
    try:
        board = Alone(settings["is_parallel"])
        endpoint = Endpoint(own, board, timeout_s=settings["timeout_s"])  # type: ignore[arg-type]
        for turn in itertools.count():
            pushed = np.asarray(mine + np.uint32(turn))
            expected = np.asarray(total + np.uint32(workers * turn))
            pushed[0, 0] += turn + 1 >= settings["rounds"] and is_told_to_end()
            result = endpoint.sum_lanes(pushed)
            report["ends"].append(time.monotonic())
            votes = int(result[0, 0] - expected[0, 0])
            expected[0, 0] += min(votes, workers)
            report["wrong"] += int((result != expected).sum())
            if not turn:
                print("first", flush=True)
            if votes == workers:
                break
    except (RuntimeError, OSError, ValueError) as error:
        report["error"] = [time.monotonic(), type(error).__name__, str(error)]
    if endpoint:
        counters = endpoint.counters
        report["counters"] = {
            name: getattr(counters, name)
            for name in (
                "pushed",
                "retransmitted",
                "timeouts",
                "notices",
                "window_sum",
                "window_samples",
                "rtt_us",
            )
        }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
