"""Replay a job on links that exactly deliver their rates, and on machines that compute as long as measured;
nothing else takes time. Pure.

Collectives use the links in the order in which they were asked for, each when all its workers have asked. A
link is a token bucket (GCRA): by any time it has sent at most its depth plus its rate times the time passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.telemetry.timelines import ASKED, Step


@dataclass(frozen=True, slots=True)
class Use:
    """A collective's use of one direction of a link: `busy_s` at the link's rate; `depth_s` is the burst that
    the link may send at once.

    Each worker in `sources` releases an equal share of it by asking; without sources, it starts when all have
    asked. `through_s(from_s, busy_s)` returns when that much of the link's time has passed, for a link that
    is not available all the time.
    """

    link: str
    busy_s: float
    depth_s: float = 0.0
    sources: tuple[int, ...] = ()
    through_s: Callable[[float, float], float] | None = None

    def end_s(self, from_s: float, busy_s: float) -> float:
        return from_s + busy_s if self.through_s is None else self.through_s(from_s, busy_s)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective's transfer: its uses of links, and the time that follows the last of them. The uses in
    `behind` follow one after the other: the first when all have asked, the next not before the collective is
    complete. A collective that `settles` waits for all of them.
    """

    uses: tuple[Use, ...]
    tail_s: float = 0.0
    behind: tuple[Use, ...] = ()
    settles: bool = False


@dataclass(slots=True)
class _Links:
    free_s: dict[str, float] = field(
        default_factory=dict
    )  # when a link has sent everything, its depth ignored

    def send(self, use: Use, asked_s: Sequence[float]) -> float:
        """Send a use's bytes, and return when the last of them is through."""
        arrivals = sorted(asked_s[worker] for worker in use.sources) or [max(asked_s)]
        free_s = self.free_s.get(use.link, 0.0)
        for arrival_s in arrivals:
            free_s = use.end_s(max(free_s, arrival_s - use.depth_s), use.busy_s / len(arrivals))
        self.free_s[use.link] = free_s
        return max(free_s, arrivals[-1])


def replay(scripts: Sequence[Sequence[Step]], transfers: Mapping[int, Transfer]) -> list[float]:
    """Return the seconds after which each worker's script ends, if all begin at 0. `transfers` is by
    collective number.

    ValueError if a script waits for a collective that was never asked for.
    """
    links, there_s, settled_s = _Links(), dict[int, float](), 0.0
    now_s, at = [0.0] * len(scripts), [0] * len(scripts)
    numbers = [step.number for step in scripts[0] if step.what == ASKED]
    for number in [*numbers, None]:
        for worker, script in enumerate(scripts):
            now_s[worker], at[worker] = _until(script, at[worker], now_s[worker], number, there_s)
        if number is not None:
            transfer = transfers[number]
            through_s = [links.send(use, now_s) for use in transfer.uses]
            ended_s = max([*now_s, *through_s])
            asked_s: Sequence[float] = now_s
            for use in transfer.behind:
                asked_s = [max(ended_s, links.send(use, asked_s))]
                settled_s = max(settled_s, *asked_s)
            there_s[number] = max(ended_s, settled_s if transfer.settles else 0.0) + transfer.tail_s
    return now_s


def _until(
    script: Sequence[Step], at: int, now_s: float, number: int | None, there_s: Mapping[int, float]
) -> tuple[float, int]:
    """Advance a script until it asks for this collective, or ends; return the time and the next step."""
    while at < len(script):
        step = script[at]
        at += 1
        now_s += step.compute_s
        if step.what == ASKED:
            if step.number != number:
                raise ValueError(f"collective {step.number} is asked for where others ask for {number}")
            return now_s, at
        if step.number in there_s:  # else it was complete before the first step
            now_s = max(now_s, there_s[step.number])
    if number is not None:
        raise ValueError(f"collective {number} is never asked for")
    return now_s, at
