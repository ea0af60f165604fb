"""The choice of a system by `--sync auto`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class AutomaticChoice:
    """The system that `--sync auto` chose for a job. `bounds_ms`: by system, the least time that the job's
    links would need for one all-reduce of `size_bytes`, the fastest first; 0 if none of the links that it
    would use has a rate. `refused`: by system, why it cannot sum this job here, or why it is no candidate.
    `line`: all this in words.
    """

    system: str
    size_bytes: int
    bounds_ms: dict[str, Number]
    refused: dict[str, str]
    line: str
