"""The checksum of what a disk holds of a layer. Imports numpy, and of the project the layout."""

from __future__ import annotations

import zlib

import numpy as np

from workloads.luwu.layout import PAGE

_WORD_BYTES = 8


def checksum(view: memoryview) -> int:
    """Return 32 bits of whole pages: the CRC of each page's sum, and of the sums over all pages of each word.

    Two flipped bits change at least one sum, and so do pages that changed places. It is as fast as memory,
    which a CRC of all bytes is not: an iteration reads and writes 30 bytes for each parameter.
    """
    words = np.frombuffer(view, dtype=np.uint64).reshape(-1, PAGE // _WORD_BYTES)
    pages, columns = words.sum(axis=1), words.sum(axis=0)
    return zlib.crc32(columns.tobytes(), zlib.crc32(pages.tobytes()))
