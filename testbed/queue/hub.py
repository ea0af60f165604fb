"""What policies can plan for, of the ways in which systems lay jobs out: circuits between one unit, the hub,
and those of the workers. Pure.
"""

from __future__ import annotations

from testbed.aggregation.system import Layout
from testbed.contract.transports import SERVER
from testbed.errors import RequestError
from testbed.topology import addresses


def hub_of(layout: Layout) -> int:
    """The unit where a job's circuits meet: its server's, or, without one, that of the top of its forest or
    of one of its workers. RequestError where they do not all join it to a unit with workers, which is all
    that policies plan.
    """
    tops = [tree.top.place.unit for tree in layout.forest.trees] if layout.forest else []
    able = [layout.server[0]] if layout.server else [*tops, *layout.units]
    for hub in able:
        if all(hub in pair and {*pair} <= {hub, *layout.units} for pair in layout.demands):
            return hub
    joined = ", ".join("-".join(addresses.unit_name(unit) for unit in pair) for pair in layout.demands)
    raise RequestError(
        f"sync {layout.system}: it needs circuits {joined}; policies plan circuits between one unit and "
        f"those of the workers: place it in fewer units, or run it by testbed run"
    )


def meeting_of(layout: Layout) -> int:
    """How many of its streams meet in one queue, at most."""
    if layout.forest is not None:
        return layout.forest.meeting()
    return len(layout.workers) if layout.transport == SERVER else 1


def served_where_asked(layout: Layout, unit: int | None) -> bool:
    """Whether the job's server, if it has one, is in the unit that was asked for, if one was."""
    return layout.server is None or unit is None or layout.server[0] == unit
