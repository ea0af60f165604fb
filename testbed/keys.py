"""Declare the keys of a configuration, each once: name, kind of value with its range, default, and a line of
help. The reader, its errors, the writer, the documents' tables and the JSON Schema are derived from them.
Pure; imports nothing of the project.

A key is declared by `key` at the dataclass field that holds its value; a key that no single field holds is a
`Parameter` of the class itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar

TIME = re.compile(r"([0-9]+(?:\.[0-9]*)?)(us|ms|s)")
_UNITS_MS = {"us": Decimal("0.001"), "ms": Decimal(1), "s": Decimal(1000)}
_LEAST_MS = 1e-6  # a nanosecond
PERCENTAGE = re.compile(r"([0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?|[0-9]+\.)%")
NEEDED = "needed"  # the default of a required key, in documents

# ---- kinds of values; an optical model's settings have one of the first five ----


@dataclass(frozen=True, slots=True)
class Duration:
    """Milliseconds from 0 to a minute, or a distribution of them. Read as a `Delay`."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a range. Read as a float; `noun` names it in errors."""

    low: float
    high: float
    noun: str = "a number"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number of a range. Read as an int."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class WholeOrWord:
    """A whole number of a range, or one word. Read as an int: the word as `stands_for`, below the range."""

    low: int
    high: int
    word: str
    stands_for: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    """One of several words. Read as a str."""

    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class YesNo:
    """true or false. Read as a bool."""


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """A power of two of a range. Read as an int."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Rate:
    """A link's declared rate in Mb/s, which the scale divides, or the word unshaped. Read as a float, or
    None.
    """


@dataclass(frozen=True, slots=True)
class Name:
    """A line of text, the name of something in `status` and results."""


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """A list of FILE.py:CLASS with existing files. Read as a tuple of these with absolute paths."""


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names of `noun`. Read as a tuple."""

    noun: str


@dataclass(frozen=True, slots=True)
class Time:
    """A time like 200us, 5ms or 0.1s. Read as a float, in milliseconds."""

    MOST_MS: ClassVar[float] = 10_000.0
    ACCEPTED: ClassVar[str] = f"a time like 200us, 5ms or 0.1s, up to {MOST_MS / 1e3:g}s, is accepted"

    @classmethod
    def read(cls, raw: Any) -> float | None:
        """Return the milliseconds of a text; None for anything else that is no such time."""
        match = TIME.fullmatch(raw) if isinstance(raw, str) else None
        value_ms = float(Decimal(match[1]) * _UNITS_MS[match[2]]) if match else -1.0
        return value_ms if value_ms == 0 or _LEAST_MS <= value_ms <= cls.MOST_MS else None

    @staticmethod
    def written(value_ms: float) -> str:
        """Return the text that `read` reads back to an equal number."""
        return f"{Decimal(repr(value_ms)):f}ms"


@dataclass(frozen=True, slots=True)
class Percentage:
    """A percentage with its sign, like 0.1%, since 0.01 might mean 1%. Read as a float, a share from 0 to
    1.
    """

    ACCEPTED: ClassVar[str] = "a percentage from 0% to 100% is accepted, with its sign"

    @classmethod
    def read(cls, raw: Any) -> float | None:
        """Return the share that a text names; None for anything else that is no such percentage."""
        match = PERCENTAGE.fullmatch(raw) if isinstance(raw, str) else None
        share = float(Decimal(match[1]) / 100) if match else -1.0
        return share if 0 <= share <= 1 else None

    @staticmethod
    def written(share: float) -> str:
        """Return the text that `read` reads back to an equal number."""
        return f"{Decimal(repr(share)) * 100:f}%"


@dataclass(frozen=True, slots=True)
class HostName:
    """A name as programs look hosts up by: letters, digits and hyphens."""


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A command line, which a shell reads."""


Plain = (
    Duration | Quantity | Whole | WholeOrWord | Word | YesNo | PowerOfTwo | Name | Names | ProgramFiles
    | Time | Percentage | HostName | ShellLine
)  # fmt: skip
"""The kinds whose value depends on no other key."""


# ---- compound forms; code that knows the rules between keys reads them ----


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the form `noun`."""

    noun: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of `least` to `most` items, each a `noun`."""

    noun: str
    of: Kind
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ByName:
    """A mapping from names of `noun` to values."""

    noun: str
    of: Kind


@dataclass(frozen=True, slots=True)
class Either:
    """One of two forms."""

    first: Kind
    second: Kind


@dataclass(frozen=True, slots=True)
class Section:
    """Keys and values; `is_open`: other keys are accepted too."""

    keys: tuple[Parameter, ...]
    is_open: bool = False


Kind = Plain | Rate | Text | ListOf | ByName | Either | Section


@dataclass(frozen=True, slots=True)
class Parameter:
    """A key of a configuration. In `ocs`: with `of_planes`, each of several optical switches may have its own
    value; with `of_ports`, each optical port may too. `default` None: no value; `usual` says in words what
    holds then.
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
    """Return the metadata of a field that holds a key's value. `name` is the key's name if it differs from
    the field's; `default` is the default in a file if it differs from the field's.
    """
    return {"key": Parameter(name, kind, default, help, usual=usual)}


@cache
def keys_of(holder: type) -> Mapping[str, Parameter]:
    """Return the keys that a class declares, in order, by the declaring field or class variable."""
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
    """Return the section that consists of a class's keys."""
    return Section(tuple(keys_of(holder).values()))
