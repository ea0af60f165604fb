"""The systems that there are, by name: every package of testbed/systems/ says which it has in `SYSTEMS`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from testbed.aggregation.system import System
from testbed.discovery.user_class import in_a_line
from testbed.errors import RequestError, TestbedError

PACKAGE = "testbed.systems"


@functools.cache
def systems() -> dict[str, System]:
    """Return all systems by name, in the order of their names. TestbedError names a package that cannot be
    imported, or a name that two systems have.
    """
    package = importlib.import_module(PACKAGE)
    named: dict[str, System] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg:
            for system in _systems_of(info.name):
                if system.name in named:
                    raise TestbedError(
                        f"system {system.name!r}: two have this name, the second in {PACKAGE}.{info.name}"
                    )
                named[system.name] = system
    return dict(sorted(named.items()))


def _systems_of(name: str) -> tuple[System, ...]:
    try:
        return tuple(importlib.import_module(f"{PACKAGE}.{name}").SYSTEMS)
    except Exception as error:  # a package of somebody's may raise anything
        raise TestbedError(f"import {PACKAGE}.{name}: {in_a_line(error)}") from error


def find(name: str) -> System:
    """The system of that name. RequestError names those that there are."""
    try:
        return systems()[name]
    except KeyError:
        raise RequestError(f"--sync {name!r}: accepted are {', '.join(systems())}, FILE.py:CLASS") from None
