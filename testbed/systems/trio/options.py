"""The options of jobs that are summed by block records. Pure; imports no other module of this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.aggregation.packets import Packets
from testbed.errors import RequestError
from testbed.jobs.options import count, declare
from testbed.topology.fields import is_number, shown

LEAST_AGE_OUT_MS, MOST_AGE_OUT_MS = 1.0, 100.0
MOST_WINDOW = 16384
USUAL_WINDOW = 512
LEAST_LEAVE_AFTER, MOST_LEAVE_AFTER = 1, 1000
_WAITS = "{system} does not sum by block records, so sums wait for every worker"


def _age_out_ms(raw: Any, key: str, path: str) -> float:
    if is_number(raw) and (raw == 0 or LEAST_AGE_OUT_MS <= raw <= MOST_AGE_OUT_MS):
        return float(raw)
    raise RequestError(
        f"{path}{key}: {shown(raw)}; {LEAST_AGE_OUT_MS:g} to {MOST_AGE_OUT_MS:g} ms are accepted, and 0: as "
        "long as it takes"
    )


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """The options, as part of a job's (JobOptions has the slots). None stands for a default that depends:
    `age_out_ms` as the job's system says, `window` as the program does, `leave_after` never.
    """

    __slots__ = ()

    age_out_ms: float | None = field(
        default=None,
        metadata=declare(
            _age_out_ms,
            "send a sum without workers that are later than MS milliseconds, if the system can; 0: never",
            usual="the system's own",
            after="recovery",
            elsewhere=_WAITS,
            metavar="MS",
            typed=float,
            flags=("--age-out",),
        ),
    )
    window: int | None = field(
        default=None,
        metadata=declare(
            count(1, MOST_WINDOW),
            "let a worker have at most N packets under way, if the system sums by block records",
            usual=str(USUAL_WINDOW),
            after="age_out_ms",
            elsewhere="{system} does not sum by block records; its window is half of its segment",
            metavar="N",
            typed=int,
        ),
    )
    leave_after: int | None = field(
        default=None,
        metadata=declare(
            count(LEAST_LEAVE_AFTER, MOST_LEAVE_AFTER),
            "continue without a worker that sent nothing in N checks, each ten times the age-out after the "
            "last, until it sends again; only if the system sums by block records",
            usual="never",
            after="window",
            elsewhere=_WAITS,
            metavar="N",
            typed=int,
        ),
    )


@dataclass(frozen=True, slots=True)
class BlockChoices:
    """A job's choices for these options: `age_out_ms`, how long a sum waits for a worker (0: without limit);
    `window`, the most blocks that a worker has under way; `leave_after`, after how many checks without a
    contribution a worker leaves the sums until it comes back. None: no choice.
    """

    age_out_ms: float | None
    window: int | None
    leave_after: int | None

    @classmethod
    def of(cls, packets: Packets) -> BlockChoices:
        """Read the choices of a job, and its system's usual values."""
        window, leave_after = packets.value("window"), packets.value("leave_after")
        return cls(
            packets.value("age_out_ms"),
            None if window is None else int(window),
            None if leave_after is None else int(leave_after),
        )
