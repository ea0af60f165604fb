"""The systems that there are, by name: every package of testbed/systems/ says which it has in `SYSTEMS`, and
their data-plane programs in `PROGRAMS`. One with simulations of a paper says them in `PAPERS`, by the paper,
where no system of its brings them. A configuration names further data-plane programs, FILE.py:CLASS.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from types import ModuleType

from testbed.aggregation.figure import Figure
from testbed.aggregation.program import SUM, DataPlaneProgram, ProgramSource
from testbed.aggregation.slots import SlotProgram
from testbed.aggregation.system import System
from testbed.contract.places import SIZES, Program
from testbed.discovery.user_class import in_a_line, load
from testbed.errors import RequestError, TestbedError
from testbed.topology.dataplanes import HOSTS

PACKAGE = "testbed.systems"
MOST_PROGRAMS = next(size.value for size in SIZES if size.name == "MAX_PROGRAMS")
_OWN: dict[str, DataPlaneProgram] = {}  # of a configuration


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
    """Return all data-plane programs by name: the core's, those that packages of systems have in `PROGRAMS`,
    and those of `with_programs`. TestbedError names a package that cannot be imported, or a name that two
    programs have.
    """
    named: dict[str, DataPlaneProgram] = {SlotProgram.name: SlotProgram()}
    for package in _packages():
        for program in getattr(package, "PROGRAMS", ()):
            if program.name in named:
                raise TestbedError(
                    f"program {program.name!r}: two have this name, the second in {package.__name__}"
                )
            named[program.name] = program
    return {**named, **_OWN}


@contextmanager
def with_programs(names: Sequence[str]) -> Iterator[None]:
    """Have the data-plane programs that a configuration names, FILE.py:CLASS, among `programs` meanwhile.
    RequestError names one that cannot be loaded, is no such program, or has the name of another.
    """
    try:
        for name in names:
            program = _own(name)
            if program.name in programs():
                raise RequestError(f"programs: {name}: there is a program {program.name!r} already")
            _OWN[program.name] = program
            programs.cache_clear()
        if len(programs()) > MOST_PROGRAMS:
            raise RequestError(
                f"programs: {len(names)} of them; {MOST_PROGRAMS - len(programs()) + len(names)} are accepted"
            )
        yield
    finally:
        _OWN.clear()
        programs.cache_clear()


def _own(name: str) -> DataPlaneProgram:
    _require_trusted(name, Path(name.rpartition(":")[0]))
    try:
        program: DataPlaneProgram = load(name)()
    except Exception as error:  # a file of somebody's may raise anything
        raise RequestError(f"programs: {name}: {in_a_line(error)}") from error
    for needed in ("name", "shares", "sources", "check", "grant", "grants_of_groups", "pool"):
        if not hasattr(program, needed):
            raise RequestError(
                f"programs: {name}: it has no {needed!r}; a class with all of DataPlaneProgram is accepted"
            )
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", program.name):
        raise RequestError(
            f"programs: {name}: its name {program.name!r}; up to 31 small letters, digits and _ are accepted"
        )
    for engine, path in program.sources.items():
        if engine != HOSTS:
            raise RequestError(f"programs: {name}: a source for {engine!r}; {HOSTS} is accepted")
        if not path.is_absolute() or not path.is_file():
            raise RequestError(f"programs: {name}: its source for {engine}, {path}, is no file")
        _require_trusted(name, path)
    return program


def _require_trusted(name: str, path: Path) -> None:
    """Raise RequestError for a file by which another user would have root run code: one that is neither
    root's nor of the owner of this package, or that everybody may write.
    """
    file, owners = path.stat(), {0, Path(__file__).stat().st_uid}
    if file.st_uid not in owners or file.st_mode & 0o002:
        raise RequestError(
            f"programs: {name}: {path} is of user {file.st_uid}, mode {file.st_mode & 0o777:o}; root runs "
            f"it: of user {' or '.join(map(str, sorted(owners)))} and not writable by everybody is accepted"
        )


def programs_for(engine: str) -> list[str]:
    """Return the names of the programs that this engine has."""
    return [name for name, program in programs().items() if engine in program.sources]


def sources(engine: str) -> tuple[ProgramSource, ...]:
    """Return the programs of systems that this engine has, each with its number: those that the contract does
    not number come behind those that it does.
    """
    numbers = {program.name.lower(): int(program) for program in Program}
    free = iter(range(len(numbers), MOST_PROGRAMS))
    every = {name: numbers[name] if name in numbers else next(free) for name in programs()}
    return tuple(
        ProgramSource(name, number, program.sources[engine])
        for name, number in sorted(every.items(), key=itemgetter(1))
        if name != SUM and engine in (program := programs()[name]).sources
    )


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
