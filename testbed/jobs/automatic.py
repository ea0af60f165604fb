"""`--sync auto`: choose the system whose links need the least time for a job, where it is placed and over the
network that it would have.

The candidates are the registered systems, but for those that say why they are none (System.not_automatic).
Each lays the job out as if the job named it; nothing is held. The chosen layout is then the job's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.selection import Selection
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout, System
from testbed.errors import RequestError
from testbed.plugins.policies import choice, usual
from testbed.plugins.registry import AUTO, systems
from testbed.telemetry.forecast import Forecast
from testbed.topology.places import Host

SIZE_BYTES = 10_000_000
"""The gradients of the all-reduce that the bounds are of; they grow nearly in proportion to it."""
EQUAL_WITHIN = 1.01  # bounds that differ by less count as equal


@dataclass(frozen=True, slots=True)
class Offer:
    """A layout that could sum the job, and the time that its links would need."""

    layout: Layout
    forecast: Forecast


class Automatic(System):
    """Lays a job out by the system with the least bound. `lay_out_by` lays it out by one system, and
    `forecast` computes the bound of a layout; both raise RequestError or NoRoomError if that is impossible.
    Any other TestbedError, such as a controller that is away, is the request's.
    """

    name = AUTO
    summary = "the system that the links allow the least time"

    def __init__(
        self,
        lay_out_by: Callable[[System, Sequence[Host], Site], Layout],
        forecast: Callable[[Layout], Forecast],
    ) -> None:
        self._lay_out_by, self._forecast = lay_out_by, forecast

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay the job out. Raises RequestError with each system's reason if none can."""
        candidates: list[Offer] = []
        refused: dict[str, str] = {}
        for name, system in candidates_by_name().items():
            try:
                layout = self._lay_out_by(system, workers, site)
                candidates.append(Offer(layout, self._forecast(layout)))
            except (RequestError, NoRoomError) as error:
                refused[name] = str(error).removeprefix(f"--sync {name}: ")
        return chosen(candidates, refused, choice(usual()).with_inc.name)


def candidates_by_name() -> dict[str, System]:
    """Return the systems between which AUTO chooses."""
    return {name: system for name, system in systems().items() if not system.not_automatic}


def chosen(candidates: Sequence[Offer], refused: Mapping[str, str], preferred: str) -> Layout:
    """Return the candidate with the least bound; of equal ones that of the system `preferred`, else that
    which holds the fewest hosts, else the first by name. `refused` has each other system's reason. Raises
    RequestError with these reasons if there is no candidate.
    """
    if not candidates:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise RequestError(f"--sync {AUTO}: no system can sum this job: {reasons}")
    in_order = sorted(candidates, key=lambda each: (each.forecast.bound_ms, each.layout.system))
    least_ms = in_order[0].forecast.bound_ms
    equal = [each for each in in_order if each.forecast.bound_ms <= least_ms * EQUAL_WITHIN]
    best = min(
        equal,
        key=lambda each: (
            each.layout.system != preferred,
            len(each.layout.hosts()),
            each.layout.system,
        ),
    )
    others = [each for each in in_order if each is not best]
    automatic = Selection(
        best.layout.system,
        SIZE_BYTES,
        {each.layout.system: round(each.forecast.bound_ms, 4) for each in (best, *others)},
        {**refused, **{name: each.not_automatic for name, each in systems().items() if each.not_automatic}},
        _line(best, others, refused),
    )
    return replace(best.layout, automatic=automatic)


def _line(best: Offer, others: Sequence[Offer], refused: Mapping[str, str]) -> str:
    """Describe a choice, such as `auto: switches, 43 ms for 10 MB at least; ring 63, inc 86`."""
    first = f"{AUTO}: {best.layout.system}"
    if best.forecast.bound_ms:
        first += f", {_in_words(best)} ms for {SIZE_BYTES / 1e6:g} MB at least"
    else:
        first += ", which no link holds up"
    parts = [first]
    if slower := [each for each in others if each.forecast.bound_ms]:
        parts.append(", ".join(f"{each.layout.system} {_in_words(each)}" for each in slower))
    names: dict[str, list[str]] = {}  # by reason
    for name, why in refused.items():
        names.setdefault(why, []).append(name)
    parts += [f"not {', '.join(same)} ({why})" for why, same in names.items()]
    return "; ".join(parts)


def _in_words(candidate: Offer) -> str:
    bound_ms = candidate.forecast.bound_ms
    return f"{bound_ms:.0f}" if bound_ms >= 10 else f"{bound_ms:.2g}"
