"""A worker of a job in which others are missing: sum lanes that identify their worker, and values that are
equal on all workers.

Prints one JSON object: whether each element's sum has as many workers as its outcome says, which they were,
and the values' sum.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from testbed.wire.settings import EndpointSettings, read
from tests.privileged.summing_worker import Alone
from workloads.endpoint import Endpoint

LANES = 10 * 101 + 7
VALUES = 3_001


def main() -> None:
    settings = read(EndpointSettings, sys.argv[1])
    endpoint = Endpoint(settings, Alone(), timeout_s=90)  # type: ignore[arg-type]
    lanes = np.full(LANES, 1 << 8 * settings.worker, np.uint32)
    endpoint.submit_lanes(lanes)
    outcome = endpoint.finish()
    members = np.array([sum(int(lane) >> 8 * rank & 1 for rank in range(4)) for lane in lanes])
    values = np.full(VALUES, 3.0, np.float32)
    after = endpoint.allreduce(values)
    said = {
        "sums": sorted({int(lane) for lane in lanes}),
        "as the outcome says": bool((members == outcome.by_element(LANES)).all()),
        "degraded": [outcome.degraded, after.degraded],
        "fragments": [outcome.by_fragment.size, after.by_fragment.size],
        "values": sorted({float(value) for value in values}),
        "counted": endpoint.counters.degraded,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
