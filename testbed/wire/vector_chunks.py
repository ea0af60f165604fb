"""The chunks in which a vector goes to a parameter server and its sum comes back. Pure: what both a worker
and a bound on its time know.
"""

from __future__ import annotations

CHUNK_BYTES = 256 * 1024
_GRADIENT_BYTES = 4
MOST, LEAST = CHUNK_BYTES // _GRADIENT_BYTES, 1024
# of a vector, within these limits: a sum comes down when a part of each worker has gone up, and no earlier,
# so that the server's link takes a part longer than the vectors themselves; more of them cost processor time
PARTS = 128


def chunk_of(length: int) -> int:
    """Return how many gradients a chunk has of a vector of this length, the same on all workers."""
    return max(LEAST, min(MOST, -(-length // PARTS)))
