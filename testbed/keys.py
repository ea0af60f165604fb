"""Keys of a configuration as they are declared, each once: name, kind of value with its range, default, and a
line of help. The reader, its error lines, the way back to a file's words, the documents' tables and the JSON
Schema come from there. Pure; imports nothing of the project's.

A key is declared at the field of a dataclass that holds its value, by `key`; one that no single field holds
is a `Parameter` of the class itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any

NEEDED = "needed"  # what documents say of a key without which a mapping is refused

# ---- kinds of values: the first five also of what an optical model declares ----


@dataclass(frozen=True, slots=True)
class Duration:
    """Milliseconds from 0 to a minute, or what they are drawn from. A `Delay` to who reads it."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a range. A float to who reads it; `noun` is the word for it in errors."""

    low: float
    high: float
    noun: str = "a number"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number of a range. An int to who reads it."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Word:
    """One of some words. A str to who reads it."""

    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class YesNo:
    """true or false. A bool to who reads it."""


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """A power of two of a range. An int."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Rate:
    """A declared rate of a link in Mb/s, which the scale divides, or the word unshaped. A float, or None."""


@dataclass(frozen=True, slots=True)
class Name:
    """A line of text by which `status` and results call something."""


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """A list of FILE.py:CLASS, whose files are there. A tuple of these with whole paths."""


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names of what `noun` says. A tuple of these."""

    noun: str


Plain = Duration | Quantity | Whole | Word | YesNo | PowerOfTwo | Name | Names | ProgramFiles
"""The kinds whose value depends on no other key."""


# ---- forms that are made of others; code that knows the rules between keys reads them ----


@dataclass(frozen=True, slots=True)
class Text:
    """A text of a form that `noun` says."""

    noun: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of so many of what `noun` says."""

    noun: str
    of: Kind
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ByName:
    """Names, which are of what `noun` says, each with a value."""

    noun: str
    of: Kind


@dataclass(frozen=True, slots=True)
class Either:
    """One of two forms."""

    first: Kind
    second: Kind


@dataclass(frozen=True, slots=True)
class Section:
    """Keys and values; `is_open`: further keys than these are accepted, too."""

    keys: tuple[Parameter, ...]
    is_open: bool = False


Kind = Plain | Rate | Text | ListOf | ByName | Either | Section


@dataclass(frozen=True, slots=True)
class Parameter:
    """A key of a configuration. Of one of `ocs`: with `of_planes` each of several optical switches may have a
    value of its own, with `of_ports` each optical port, too. `default` None: nothing, where the
    configuration says none; `usual` says in words what holds then.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    of_planes: bool = False
    of_ports: bool = False
    usual: str = ""


def key(
    kind: Kind, help: str, *, name: str = "", default: Any = MISSING, usual: str = ""
) -> dict[str, Parameter]:
    """Return the metadata of a field that holds a key's value. `name` is the key's where the field has
    another, and `default` that of a file where the field has another.
    """
    return {"key": Parameter(name, kind, default, help, usual=usual)}


@cache
def keys_of(holder: type) -> Mapping[str, Parameter]:
    """Return the keys that a class declares, in their order, by the fields and class variables that do."""
    held = {each.name: each for each in fields(holder)}
    keys: dict[str, Parameter] = {}
    for name in holder.__annotations__:
        if name not in held:
            declared = getattr(holder, name)
            if isinstance(declared, Parameter):
                keys[name] = declared
        elif declared := held[name].metadata.get("key"):
            default = held[name].default if declared.default is MISSING else declared.default
            keys[name] = replace(
                declared, name=declared.name or name, default=None if default is MISSING else default
            )
    return keys


@cache
def names_of(holder: type) -> tuple[str, ...]:
    """Return the names of the keys that a class declares."""
    return tuple(each.name for each in keys_of(holder).values())


def section_of(holder: type) -> Section:
    """Return the form of a mapping that has the keys of a class."""
    return Section(tuple(keys_of(holder).values()))
