"""The file of a job's samples, a compressed NumPy archive: its arrays, how it is written and read. Pure."""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The samples. Rows are the intervals between them; all arrays except `late_ms` and `backlog` count what
    happened in an interval.

    time_s (rows): the interval's end, from the first sample on. late_ms (rows). cores (rows, cores, 4), in
    seconds: busy, softirq, steal, iowait. softnet (rows, cores, 2): dropped, squeezed. waiting_s (rows). Only
    some samples read links, and only links that carried something are kept: links, rates_mbps (0: none),
    link_time_s (link rows), sent (link rows, links, 2) in bytes by direction, queue_drops and backlog in
    bytes (link rows, links). segments (rows, switches): in use, of `switches`. round_end_s and round_ms
    (rounds), if the job's rounds were seen.
    """

    began_unix: Array
    time_s: Array
    late_ms: Array
    cores: Array
    softnet: Array
    waiting_s: Array
    links: Array
    rates_mbps: Array
    link_time_s: Array
    sent: Array
    queue_drops: Array
    backlog: Array
    switches: Array
    segments: Array
    round_end_s: Array
    round_ms: Array

    @classmethod
    def read(cls, file: Path | io.BytesIO) -> Self:
        """Read an archive. Raises KeyError for one that lacks an array."""
        with np.load(file) as arrays:
            return cls(*(arrays[each.name] for each in fields(cls)))

    def npz(self) -> bytes:
        """Return the content of the archive."""
        file = io.BytesIO()
        np.savez_compressed(file, **{each.name: getattr(self, each.name) for each in fields(self)})
        return file.getvalue()
