"""Register systems and data-plane programs by name. Each package of testbed/systems/ declares its systems in
`SYSTEMS` and their data-plane programs in `PROGRAMS`. A package with simulated figures of a paper that none
of its systems brings declares them in `PAPERS`, by paper. A configuration adds data-plane programs by
FILE.py:CLASS.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.aggregation.figure import Figure
from testbed.aggregation.program import SUM, DataPlaneProgram, ProgramSource
from testbed.aggregation.slots import SlotProgram
from testbed.aggregation.system import System
from testbed.errors import RequestError, TestbedError
from testbed.plugins.declarations import PACKAGE
from testbed.plugins.user_class import in_a_line
from testbed.topology.dataplanes import HOSTS
from testbed.wire.places import MAX_PROGRAMS, Program
from testbed.wire.records import Record

RESERVED = frozenset(
    {"tor", "oxc", "host", "loop", "copy", "calendar", "control", "room", "question", "questions"}
)
"""Names that the core's own kernel programs use: NAME_port."""
AUTO = "auto"
"""Stands, where a system is named, for the one that the testbed chooses (testbed/jobs/automatic.py)."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include.*", re.MULTILINE)
_OWN: dict[str, DataPlaneProgram] = {}  # of a configuration
_CHOSEN: dict[str, Sequence[str]] = {}  # by engine, those programs of systems that a configuration has for it


@functools.cache
def systems() -> dict[str, System]:
    """Return all systems by name, sorted by name. TestbedError names a package that cannot be imported, or a
    name that two systems have.
    """
    named: dict[str, System] = {}
    for package in _packages():
        for system in package.SYSTEMS:
            if system.name in named:
                raise TestbedError(
                    f"system {system.name!r}: two have this name, the second in {package.__name__}"
                )
            if system.name == AUTO:
                raise TestbedError(
                    f"system {AUTO!r} in {package.__name__}: the name stands for the testbed's own choice"
                )
            named[system.name] = system
    return dict(sorted(named.items()))


@functools.cache
def programs() -> dict[str, DataPlaneProgram]:
    """Return all data-plane programs by name: the core's, those in `PROGRAMS` of packages of systems, and
    those that `with_programs` added. TestbedError names a package that cannot be imported, or a name that two
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
def with_programs(names: Sequence[str], chosen: Mapping[str, Sequence[str]] | None = None) -> Iterator[None]:
    """Add the data-plane programs that a configuration names (FILE.py:CLASS) to `programs` while the block
    runs. An engine in `chosen` gets only the systems' programs that are listed there. RequestError names a
    program that cannot be loaded, is not a DataPlaneProgram, has a name in use, or exceeds MAX_PROGRAMS.
    """
    try:
        for engine, wanted in (chosen or {}).items():
            sources_named(engine, wanted)
        _CHOSEN.update(chosen or {})
        for name in names:
            program = _own(name)
            if program.name in programs():
                raise RequestError(f"programs: {name}: there is a program {program.name!r} already")
            _OWN[program.name] = program
            programs.cache_clear()
        if len(programs()) > MAX_PROGRAMS:
            raise RequestError(
                f"programs: {len(names)} of them; {MAX_PROGRAMS - len(programs()) + len(names)} are accepted"
            )
        yield
    finally:
        _OWN.clear()
        _CHOSEN.clear()
        programs.cache_clear()


def _own(name: str) -> DataPlaneProgram:
    """Load a configuration's program from its single file. Root runs this code, so the source just read is
    compiled, never a cached .pyc.
    """
    where, _, class_name = name.rpartition(":")
    module = ModuleType(f"program_{Path(where).stem}")
    module.__file__, sys.modules[module.__name__] = where, module  # dataclasses look there
    try:
        require_trusted(Path(where))
        exec(compile(Path(where).read_bytes(), where, "exec"), module.__dict__)
        program: DataPlaneProgram = getattr(module, class_name)()
        _check(program)
    except RequestError as error:
        raise RequestError(f"programs: {name}: {error}") from error
    except (Exception, SystemExit) as error:  # a third party's file may raise anything
        raise RequestError(f"programs: {name}: {in_a_line(error)}") from error
    return program


def _check(program: DataPlaneProgram) -> None:
    """Raise RequestError for an object that is no program, or whose C source root must not read: an untrusted
    file, or one that includes others.
    """
    for needed in ("name", "shares", "sources", "check", "grant", "grants_of_groups", "pool"):
        if not hasattr(program, needed):
            raise RequestError(f"it has no {needed!r}; a class with all of DataPlaneProgram is accepted")
    if not isinstance(program.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", program.name):
        raise RequestError(f"its name {program.name!r}; up to 31 small letters, digits and _ are accepted")
    if program.name in RESERVED:
        raise RequestError(f"its name {program.name!r}; accepted is any but {', '.join(sorted(RESERVED))}")
    for engine, path in program.sources.items():
        if engine != HOSTS:
            raise RequestError(f"a source for {engine!r}; {HOSTS} is accepted")
        if not isinstance(path, Path) or not path.is_absolute() or not path.is_file():
            raise RequestError(
                f"its source for {engine}, {path}, is no file; a whole pathlib.Path is accepted"
            )
        require_trusted(path)
        if included := _INCLUDE.search(path.read_text()):
            raise RequestError(
                f"{path} has {included[0]}: the core's headers are there; no other is accepted"
            )
    _check_parts(program)
    maps = getattr(program, "maps", {})
    if not isinstance(maps, Mapping) or not all(
        isinstance(name, str) and isinstance(record, Record) for name, record in maps.items()
    ):
        raise RequestError(f"its maps {maps!r}; a mapping of maps' names to Record is accepted")


def _check_parts(program: DataPlaneProgram) -> None:
    """Raise RequestError if root would have to import a program's parts from anywhere but the program's own
    module or a system's package.
    """
    parts = getattr(program, "parts", {})
    if not isinstance(parts, Mapping):
        raise RequestError(f"its parts {parts!r}; a mapping of engines to MODULE:CLASS is accepted")
    own = f"{type(program).__module__}:"
    for engine, where in parts.items():
        if not isinstance(where, str) or not where.startswith((own, f"{PACKAGE}.")):
            raise RequestError(
                f"its part for {engine!r}, {where!r}; {own}CLASS, and MODULE:CLASS of {PACKAGE} are accepted"
            )
    if HOSTS in parts:
        _class_at(parts[HOSTS])


def require_trusted(path: Path) -> None:
    """Raise RequestError if another user could change a file that root runs. The file and every folder above
    it must belong to root or to the owner of this package, and be writable by nobody else.
    """
    ours = Path(__file__).stat()
    owners = {0, ours.st_uid}
    for each in (path.resolve(), *path.resolve().parents):
        status = each.stat()
        is_group_ours = status.st_gid == ours.st_gid and ours.st_mode & stat.S_IWGRP
        others = stat.S_IWOTH | (0 if is_group_ours else stat.S_IWGRP)
        is_shared = status.st_mode & stat.S_ISVTX and stat.S_ISDIR(
            status.st_mode
        )  # sticky, as /tmp: others cannot replace a name
        if status.st_uid not in owners or (status.st_mode & others and not is_shared):
            raise RequestError(
                f"{each} is of user {status.st_uid}, mode {status.st_mode & 0o777:o}, and root is to run "
                f"{path.name}: of user {' or '.join(map(str, sorted(owners)))} and writable by nobody else "
                "is accepted, and so for the folders above it"
            )


def programs_for(engine: str) -> list[str]:
    """Return the names of the programs that an engine has, in the order of their numbers."""
    every = (name for name in _numbers() if engine in programs()[name].sources)
    return [name for name in every if name == SUM or name in _CHOSEN.get(engine, [name])]


def where_to_have(engine: str, name: str) -> str:
    """Say how to configure a program that exists for this engine and that the configuration leaves out; ""
    otherwise.
    """
    if name not in programs() or engine not in programs()[name].sources or name in programs_for(engine):
        return ""
    wanted = ", ".join([*_CHOSEN[engine], name])
    return f"; a testbed has it with {engine}: {{programs: [{wanted}]}} in its configuration"


def available(named: Mapping[str, str]) -> dict[str, str]:
    """Return, of a system's programs by engine (System.programs), those that the engines have."""
    return {engine: name for engine, name in named.items() if name in programs_for(engine)}


def _numbers() -> dict[str, int]:
    """Number all programs and return the numbers in ascending order. Programs that the wire contract numbers
    keep that number; the others follow.
    """
    numbers = {program.name.lower(): int(program) for program in Program}
    free = iter(range(len(numbers), MAX_PROGRAMS))
    every = {name: numbers[name] if name in numbers else next(free) for name in programs()}
    return dict(sorted(every.items(), key=itemgetter(1)))


def sources(engine: str) -> tuple[ProgramSource, ...]:
    """Return the systems' programs that have a source for this engine, in the order of their numbers."""
    every = ((name, number, programs()[name]) for name, number in _numbers().items() if name != SUM)
    return tuple(
        ProgramSource(name, number, program.sources[engine], getattr(program, "maps", {}))
        for name, number, program in every
        if engine in program.sources
    )


def sources_named(engine: str, names: Sequence[str] | None) -> tuple[ProgramSource, ...]:
    """Return the systems' programs of these names, or all that this engine has. RequestError for a name that
    the engine lacks.
    """
    every = sources(engine)
    for name in names or ():
        if name not in [each.name for each in every]:
            known = ", ".join(each.name for each in every)
            raise RequestError(f"{engine}.programs: {name}; accepted are {known}")
    return tuple(each for each in every if names is None or each.name in names)


def made_part(name: str, make: Callable[..., Any], *arguments: object) -> Any:
    """Instantiate a program's own part of a place. TestbedError says in one line why its class raised."""
    try:
        return make(*arguments)
    except (TestbedError, OSError):
        raise
    except Exception as error:  # a third party's class may raise anything
        raise TestbedError(f"program {name!r}: its part of a place: {in_a_line(error)}") from error


def part_class(name: str, engine: str) -> Callable[..., Any] | None:
    """Return the class of a program's own part of a place for this engine (DataPlaneProgram.parts); None if
    the program has none for it. TestbedError names a class that cannot be loaded.
    """
    where: str | None = getattr(programs().get(name), "parts", {}).get(engine)
    if where is None:
        return None
    try:
        return _class_at(where)
    except Exception as error:  # a third party's package may raise anything
        raise TestbedError(f"program {name!r}: load {where}: {in_a_line(error)}") from error


def _class_at(where: str) -> Callable[..., Any]:
    """Import MODULE:CLASS and return the class; any error of the import is passed on."""
    module, _, name = where.partition(":")
    made: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return made


def simulations() -> list[tuple[str, tuple[Figure, ...]]]:
    """Return (paper, figures) for the figures that need no system. TestbedError names a package that cannot
    be imported.
    """
    said: list[Mapping[str, tuple[Figure, ...]]] = [getattr(each, "PAPERS", {}) for each in _packages()]
    return [(paper, figures) for papers in said for paper, figures in papers.items()]


def _packages() -> tuple[ModuleType, ...]:
    package = importlib.import_module(PACKAGE)
    return tuple(_imported(info.name) for info in pkgutil.iter_modules(package.__path__) if info.ispkg)


def _imported(name: str) -> ModuleType:
    try:
        package = importlib.import_module(f"{PACKAGE}.{name}")
        tuple(package.SYSTEMS), getattr(package, "PROGRAMS", ())  # a package may import its modules here
    except Exception as error:  # a third party's package may raise anything
        raise TestbedError(f"import {PACKAGE}.{name}: {in_a_line(error)}") from error
    return package


def find(name: str) -> System:
    """Return the system called `name`. RequestError lists the systems that exist."""
    try:
        return systems()[name]
    except KeyError:
        accepted = ", ".join([AUTO, *systems()])
        raise RequestError(f"--sync {name!r}: accepted are {accepted}, FILE.py:CLASS") from None
