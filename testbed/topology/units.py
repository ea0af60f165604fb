"""Units' numbers, from 1. They have a type of their own, so that an index from 0 cannot be mistaken for one.
Pure.

External data becomes a `Unit` here, where it is checked. testbed/scheduling/live.py converts to scheduling's
indices from 0, which also have a type.
"""

from __future__ import annotations

from typing import Any, NewType

from testbed.errors import RequestError

Unit = NewType("Unit", int)
UnitPair = tuple[Unit, Unit]
"""Two units; for circuits, the smaller number first."""


def checked_unit(number: Any) -> Unit:
    """Check the number of a unit in external data. Raises ValueError if it is none."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"unit {number}: a whole number from 1 is accepted")
    return Unit(number)


def unit_named(name: Any) -> Unit:
    """Return the unit with a name like "u1". Raises RequestError for any other."""
    if isinstance(name, str) and name.startswith("u") and name[1:].isdecimal() and int(name[1:]):
        return Unit(int(name[1:]))
    raise RequestError(f"unit {name}: a name like u1 is accepted")
