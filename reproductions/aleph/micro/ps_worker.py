"""An endless worker of the parameter server in Python: `python -m ...ps_worker ADDRESS PORT RANK WORKERS
FILE`. Rank 0 writes to FILE how many bytes the server has received until now.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np

from workloads.ps_client import PsClient

VECTOR_BYTES = 1 << 20
JOB, LIMIT_S = "micro", 60.0


def main(words: list[str]) -> None:
    address, port, rank, workers, file = words
    vector = np.ones(VECTOR_BYTES // 4, np.float32)
    taken = 0
    with PsClient((address, int(port)), int(rank), int(workers), LIMIT_S, JOB) as client:
        while True:
            vector[:] = 1
            client.allreduce_(vector)
            taken += int(workers) * VECTOR_BYTES
            if rank == "0":
                Path(file).write_bytes(struct.pack("=Q", taken))


if __name__ == "__main__":
    main(sys.argv[1:])
