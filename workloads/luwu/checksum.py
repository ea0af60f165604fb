"""Compute the checksum of a disk's part of a layer. Imports numpy and, from the project, the layout."""

from __future__ import annotations

import zlib

import numpy as np

from workloads.luwu.layout import PAGE

_WORD_BYTES = 8


def checksum(view: memoryview) -> int:
    """Return 32 bits for whole pages: the CRC over each page's sum and over the sums of each word position
    across pages.

    Two flipped bits change at least one sum, and so do two swapped pages. This runs at the speed of memory,
    which a CRC over all bytes does not: an iteration reads and writes 30 bytes for each parameter.
    """
    words = np.frombuffer(view, dtype=np.uint64).reshape(-1, PAGE // _WORD_BYTES)
    pages, columns = words.sum(axis=1), words.sum(axis=0)
    return zlib.crc32(columns.tobytes(), zlib.crc32(pages.tobytes()))
