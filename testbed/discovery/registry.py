"""The systems that there are, by name: every package of testbed/systems/ says which it has in `SYSTEMS`, and
their data-plane programs in `PROGRAMS`. One with simulations of a paper says them in `PAPERS`, by the paper,
where no system of its brings them.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType

from testbed.aggregation.figure import Figure
from testbed.aggregation.program import DataPlaneProgram
from testbed.aggregation.slots import SlotProgram
from testbed.aggregation.system import System
from testbed.discovery.user_class import in_a_line
from testbed.errors import RequestError, TestbedError

PACKAGE = "testbed.systems"


@functools.cache
def systems() -> dict[str, System]:
    """Return all systems by name, in the order of their names. TestbedError names a package that cannot be
    imported, or a name that two systems have.
    """
    named: dict[str, System] = {}
    for package in _packages():
        for system in package.SYSTEMS:
            if system.name in named:
                raise TestbedError(
                    f"system {system.name!r}: two have this name, the second in {package.__name__}"
                )
            named[system.name] = system
    return dict(sorted(named.items()))


@functools.cache
def programs() -> dict[str, DataPlaneProgram]:
    """Return all data-plane programs by name: the core's, and those that packages of systems have in
    `PROGRAMS`. TestbedError names a package that cannot be imported, or a name that two programs have.
    """
    named: dict[str, DataPlaneProgram] = {SlotProgram.name: SlotProgram()}
    for package in _packages():
        for program in getattr(package, "PROGRAMS", ()):
            if program.name in named:
                raise TestbedError(
                    f"program {program.name!r}: two have this name, the second in {package.__name__}"
                )
            named[program.name] = program
    return named


def simulations() -> list[tuple[str, tuple[Figure, ...]]]:
    """Return papers, each with figures that need no system. TestbedError names a package that cannot be
    imported.
    """
    said: list[Mapping[str, tuple[Figure, ...]]] = [getattr(each, "PAPERS", {}) for each in _packages()]
    return [(paper, figures) for papers in said for paper, figures in papers.items()]


def _packages() -> tuple[ModuleType, ...]:
    package = importlib.import_module(PACKAGE)
    return tuple(_imported(info.name) for info in pkgutil.iter_modules(package.__path__) if info.ispkg)


def _imported(name: str) -> ModuleType:
    try:
        package = importlib.import_module(f"{PACKAGE}.{name}")
        tuple(package.SYSTEMS)
    except Exception as error:  # a package of somebody's may raise anything
        raise TestbedError(f"import {PACKAGE}.{name}: {in_a_line(error)}") from error
    return package


def find(name: str) -> System:
    """The system of that name. RequestError names those that there are."""
    try:
        return systems()[name]
    except KeyError:
        raise RequestError(f"--sync {name!r}: accepted are {', '.join(systems())}, FILE.py:CLASS") from None
