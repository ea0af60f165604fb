"""Pace an emulated disk by its declared rates. Pure: time is an argument. Imports nothing of the project but
errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import IntEnum

from workloads.luwu.errors import LuwuError

BURST_S = 0.02  # idle time that later pieces may make up for


class Queue(IntEnum):
    """A disk's queues, the most urgent first (section 3.3)."""

    READ_PARAMETERS = 0
    READ_STATES = 1
    WRITE_STATES = 2


@dataclass(frozen=True, slots=True)
class Rates:
    """Declared rates in bytes a second; None means the disk's own speed. `reads` limits both reading queues
    together.
    """

    read_parameters: float | None = None
    read_states: float | None = None
    write_states: float | None = None
    reads: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not 0 < value < float("inf"):
                raise LuwuError(f"rate {each.name}: {value}: accepted is a number of bytes a second above 0")

    @classmethod
    def parsed(cls, text: str) -> Rates:
        """Parse `reads=2.2e9,write_states=1e9`: the fields' names, bytes a second. Raises LuwuError for
        another name or value.
        """
        names = [each.name for each in fields(cls)]
        values: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            if name not in names or name in values or math.isnan(number):
                raise LuwuError(
                    f"rates {text!r}: {part!r}: accepted is NAME=BYTES_A_SECOND, each once, of "
                    f"{', '.join(names)}"
                )
            values[name] = number
        return cls(**values)

    def scaled(self, scale: float) -> Rates:
        """Return the rates divided by `scale`. Raises LuwuError unless it is above 0."""
        if not 0 < scale < float("inf"):
            raise LuwuError(f"scale {scale:g}: accepted is a number above 0")
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return Rates(**{name: value and value / scale for name, value in values.items()})


class Pace:
    """One rate, as the time from which the next piece may start."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.free_s = float("-inf")

    def spend(self, size_bytes: int, now_s: float) -> None:
        self.free_s = max(self.free_s, now_s - BURST_S) + size_bytes / self._bytes_per_s


class Meter:
    """The paces of all queues of a disk."""

    def __init__(self, rates: Rates) -> None:
        own = (rates.read_parameters, rates.read_states, rates.write_states)
        paces = [[Pace(rate)] if rate is not None else [] for rate in own]
        if rates.reads is not None:
            both = Pace(rates.reads)
            paces[Queue.READ_PARAMETERS].append(both)
            paces[Queue.READ_STATES].append(both)
        self._paces = paces

    def free_s(self, queue: Queue) -> float:
        """Return the time from which a piece of this queue may start."""
        return max((pace.free_s for pace in self._paces[queue]), default=float("-inf"))

    def spend(self, queue: Queue, size_bytes: int, now_s: float) -> None:
        for pace in self._paces[queue]:
            pace.spend(size_bytes, now_s)
