"""A number with a name and a meaning, as every language is told it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Self


@dataclass(frozen=True, slots=True)
class Number:
    """A constant: its name in C and P4, its value, and its width in bits where P4 asks for one."""

    name: str
    value: int
    bits: int
    meaning: str = ""
    in_hex: bool = False

    @property
    def text(self) -> str:
        """The value as it is written."""
        return f"{self.value:#06x}" if self.in_hex else str(self.value)


class Choice(IntEnum):
    """An enumeration whose members say what they mean: `NAME = value, "meaning"`."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


def named(
    prefix: str, members: Iterable[Choice] | Iterable[IntFlag], bits: int, in_hex: bool = False
) -> list[Number]:
    """The members of an enumeration, each under the prefix."""
    return [
        Number(f"{prefix}{member.name}", int(member), bits, getattr(member, "meaning", ""), in_hex)
        for member in members
    ]
