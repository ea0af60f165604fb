"""The chunks in which a vector goes to a parameter server and its sum comes back. Pure: shared by workers and
by the bound on their time.
"""

from __future__ import annotations

CHUNK_BYTES = 256 * 1024
_GRADIENT_BYTES = 4
MOST, LEAST = CHUNK_BYTES // _GRADIENT_BYTES, 1024
# Chunks of a vector, within these limits. A sum comes down when one chunk of each worker has gone up, so the
# server's link needs one chunk's time longer than for the vectors themselves; more chunks cost processor
# time.
PARTS = 128


def chunk_of(length: int) -> int:
    """Return the gradients per chunk of a vector of this length, the same on all workers."""
    return max(LEAST, min(MOST, -(-length // PARTS)))
