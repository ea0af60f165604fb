"""A named number with a meaning, for rendering in every language."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Self


@dataclass(frozen=True, slots=True)
class Number:
    """A constant: its name in C and P4, its value, and its width in bits, which P4 needs."""

    name: str
    value: int
    bits: int
    meaning: str = ""
    in_hex: bool = False

    @property
    def text(self) -> str:
        """The value as source text."""
        return f"{self.value:#06x}" if self.in_hex else str(self.value)


class Choice(IntEnum):
    """An enumeration whose members have meanings: `NAME = value, "meaning"`."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


def named(
    prefix: str, members: Iterable[Choice] | Iterable[IntFlag], bits: int, in_hex: bool = False
) -> list[Number]:
    """Return the members of an enumeration as numbers, with a prefix."""
    return [
        Number(f"{prefix}{member.name}", int(member), bits, getattr(member, "meaning", ""), in_hex)
        for member in members
    ]
