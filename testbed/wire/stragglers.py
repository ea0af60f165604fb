"""The Slow Worker Pattern: which worker is slowed on purpose, when, and for how long. Pure.

From Harlap et al., "Addressing the Straggler Problem for Iterative Convergent Parallel ML" (SoCC 2016), as
used in "Using Trio" (SIGCOMM 2022), section 6.1: an iteration has three delay points, at each of which a
worker sleeps with probability p, for a time uniform in 0.5 to 2 typical iteration times. A draw is a function
of (seed, rank, iteration, point) alone: so a run can be repeated, no worker's draws depend on another's, and
a larger p keeps the delays of a smaller one.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from testbed.errors import RequestError

POINTS = ("forward", "backward", "sum")
LEAST, MOST = 0.5, 2.0  # typical iteration times that a delay takes
MOST_SEED = 2**32 - 1
LEAST_ITERATION_S, MOST_ITERATION_S = 1e-4, 3600.0
_UNITS = {"ms": 1e-3, "s": 1.0}
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?")


class Slowed(StrEnum):
    """The workers that may be slow at a delay point."""

    EACH = "each"  # every worker draws for itself
    ONE = "one"  # one worker, chosen at random for this point, draws


_ACCEPTED = {
    "p": "a number from 0 to 1",
    "seed": f"a whole number from 0 to {MOST_SEED}",
    "iteration": f"a time such as 120ms, from {LEAST_ITERATION_S * 1e3:g}ms to {MOST_ITERATION_S:g}s,",
    "workers": " or ".join(Slowed),
}


@dataclass(frozen=True, slots=True)
class SlowWorkers:
    """The pattern. `p` is the probability of a delay at each point, `iteration_s` the typical iteration time
    (None: each worker measures it). RequestError for invalid values.
    """

    p: float
    seed: int = 1
    workers: Slowed = Slowed.EACH
    iteration_s: float | None = None

    def __post_init__(self) -> None:
        seconds = self.iteration_s
        for key, value, is_accepted in (
            ("p", self.p, 0 <= self.p <= 1),
            ("seed", self.seed, 0 <= self.seed <= MOST_SEED),
            ("iteration", seconds, seconds is None or LEAST_ITERATION_S <= seconds <= MOST_ITERATION_S),
        ):
            if not is_accepted:
                raise RequestError(_wrong("", key, value))

    @classmethod
    def parse(cls, text: object, path: str = "") -> SlowWorkers:
        """Parse a text such as p=0.16,seed=1. RequestError names key, value, and what is accepted; `path`
        precedes the key.
        """
        where = f"{path}stragglers: "
        if not isinstance(text, str) or not text:
            raise RequestError(f"{where}{_short(text)}; a text such as p=0.16,seed=1 is accepted")
        said: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (word.strip() for word in part.partition("="))
            if key not in _ACCEPTED or not equals:
                near = difflib.get_close_matches(key, _ACCEPTED, 1) if equals else []
                hint = f"did you mean {near[0]}? " if near else ""
                raise RequestError(
                    f"{where}{_short(part)}; {hint}KEY=VALUE is accepted, with the keys "
                    f"{', '.join(_ACCEPTED)}"
                )
            if key in said:
                raise RequestError(f"{where}{_short(text)}; {key} is there twice")
            said[key] = value
        if "p" not in said:
            raise RequestError(f"{where}{_short(text)}; p is missing, the probability of a delay")
        return cls(
            p=_number(said, "p", where),
            seed=_seed(said, where),
            workers=_slowed(said, where),
            iteration_s=_seconds(said, where),
        )

    def __str__(self) -> str:
        """Return the text for `parse`."""
        parts = [f"p={self.p:.12g}", f"seed={self.seed}"]
        parts += [f"workers={self.workers}"] if self.workers is not Slowed.EACH else []
        parts += [f"iteration={self.iteration_s * 1e3:.12g}ms"] if self.iteration_s is not None else []
        return ",".join(parts)

    def factor(self, rank: int, world_size: int, iteration: int, point: int) -> float:
        """Return the worker's delay at a point of an iteration, in typical iteration times; 0: none."""
        if self.workers is Slowed.ONE:
            chosen = Random(f"{self.seed}/chosen/{iteration}/{point}").randrange(world_size)
            if chosen != rank:
                return 0.0
        drawing = Random(f"{self.seed}/{rank}/{iteration}/{point}")
        decides, length = drawing.random(), drawing.random()
        return LEAST + (MOST - LEAST) * length if decides < self.p else 0.0

    def of_copy(self, copy: int) -> SlowWorkers:
        """Return the pattern for a copy of a job, numbered from 0: copies have consecutive seeds, so they are
        slow at different times.
        """
        return replace(self, seed=(self.seed + copy) % (MOST_SEED + 1))


def _wrong(where: str, key: str, value: object) -> str:
    return f"{where}{key}={_short(value)}; {_ACCEPTED[key]} is accepted"


def _short(value: object) -> str:
    words = str(value)
    return words if len(words) <= 60 else words[:57] + "..."


def _number(said: dict[str, str], key: str, where: str) -> float:
    value = float(said[key]) if _NUMBER.fullmatch(said[key]) else math.nan
    if not 0 <= value <= 1:
        raise RequestError(_wrong(where, key, said[key]))
    return abs(value)  # -0 is 0


def _seed(said: dict[str, str], where: str) -> int:
    text = said.get("seed", "1")
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= MOST_SEED):
        raise RequestError(_wrong(where, "seed", text))
    return int(text)


def _slowed(said: dict[str, str], where: str) -> Slowed:
    try:
        return Slowed(said.get("workers", Slowed.EACH))
    except ValueError:
        raise RequestError(_wrong(where, "workers", said["workers"])) from None


def _seconds(said: dict[str, str], where: str) -> float | None:
    text = said.get("iteration")
    if text is None:
        return None
    unit = "ms" if text.endswith("ms") else "s" if text.endswith("s") else ""
    number = text.removesuffix(unit)
    seconds = float(number) * _UNITS[unit] if unit and _NUMBER.fullmatch(number) else math.nan
    if not LEAST_ITERATION_S <= seconds <= MOST_ITERATION_S:
        raise RequestError(_wrong(where, "iteration", text))
    return seconds
