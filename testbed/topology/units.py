"""The numbers of units: from 1, and a type of their own, which an index from 0 cannot be taken for. Pure.

What comes from outside becomes a `Unit` here, where it is checked. Scheduling's indices from 0, which are a
type too, are made of it in testbed/scheduling/live.py.
"""

from __future__ import annotations

from typing import Any, NewType

from testbed.errors import RequestError

Unit = NewType("Unit", int)
UnitPair = tuple[Unit, Unit]
"""Two units; where it says which circuits join, the smaller number first."""


def checked_unit(number: Any) -> Unit:
    """Return the unit of a number that comes from outside. ValueError if it is none."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"unit {number}: a whole number from 1 is accepted")
    return Unit(number)


def unit_named(name: Any) -> Unit:
    """Return the unit of a name like "u1". RequestError if it is none."""
    if isinstance(name, str) and name.startswith("u") and name[1:].isdecimal() and int(name[1:]):
        return Unit(int(name[1:]))
    raise RequestError(f"unit {name}: a name like u1 is accepted")
