"""The systems that there are, by name: every package of testbed/systems/ says which it has in `SYSTEMS`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from testbed.aggregation.system import System
from testbed.errors import RequestError

PACKAGE = "testbed.systems"


@functools.cache
def systems() -> dict[str, System]:
    """All of them, by name, in the order of their names."""
    package = importlib.import_module(PACKAGE)
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if info.ispkg]
    modules = [importlib.import_module(f"{PACKAGE}.{name}") for name in names]
    named = {system.name: system for module in modules for system in module.SYSTEMS}
    return dict(sorted(named.items()))


def find(name: str) -> System:
    """The system of that name. RequestError names those that there are."""
    try:
        return systems()[name]
    except KeyError:
        raise RequestError(f"--sync {name!r}: accepted are {', '.join(systems())}, FILE.py:CLASS") from None


def policies_choice() -> tuple[System, System]:
    """The two systems between which policies choose for a job: one that places sum for, and the one that it
    names for when they have no room (`System.instead`).
    """
    first = next(system for system in systems().values() if system.instead)
    return first, find(str(first.instead))
