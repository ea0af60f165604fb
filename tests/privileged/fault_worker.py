"""A worker under faults: sums round after round, checks every lane, and says when each round's result was there.

Prints "first" after the first round, then one JSON object: the rounds' ends (CLOCK_MONOTONIC, the same for all), how many were wrong,
the endpoint's counters, and the error that ended it, if one did.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from testbed.wire import spec
from tests.privileged.summing_worker import Alone
from workloads.endpoint import Endpoint


def main() -> None:
    settings = json.loads(sys.argv[1])
    worker, workers, fragments = settings["worker"], settings["workers"], settings["fragments"]
    base = [
        np.random.default_rng(other).integers(0, 2**28, (fragments, spec.LANES), dtype=np.uint32)
        for other in range(workers)
    ]
    mine, total = base[worker], np.sum(base, axis=0, dtype=np.uint32)
    found: dict[str, Any] = {"ends": [], "wrong": 0, "error": None, "counters": {}}
    endpoint = None
    try:
        endpoint = Endpoint(settings, Alone(), timeout_s=settings["timeout_s"])  # type: ignore[arg-type]
        for turn in range(settings["rounds"]):
            result = endpoint.sum_lanes(mine + np.uint32(turn))
            found["ends"].append(time.monotonic())
            found["wrong"] += int((result != total + np.uint32(workers * turn)).sum())
            if not turn:
                print("first", flush=True)
    except (RuntimeError, OSError, ValueError) as error:
        found["error"] = [time.monotonic(), type(error).__name__, str(error)]
    if endpoint:
        counters = endpoint.counters
        found["counters"] = {
            name: getattr(counters, name) for name in ("pushed", "retransmitted", "timeouts", "notices")
        }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
