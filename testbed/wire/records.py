"""Records: C structs shared by two languages, stated as data. NumPy's types are derived here, the C text in
`render_c`, ctypes structures where a process calls C (workloads/endpoint.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

Column: TypeAlias = npt.NDArray[Any]
"""One member of many records."""


class Kind(Enum):
    """A member's type in C and in NumPy. Outside C, a pointer is a 64-bit word."""

    U8 = "__u8", "u1"
    U16 = "__u16", "=u2"
    U32 = "__u32", "=u4"
    U64 = "__u64", "=u8"
    S32 = "__s32", "=i4"
    BE16 = "__be16", ">u2"
    BE32 = "__be32", ">u4"
    F64 = "double", "=f8"
    U32_IN = "const __u32 *", "=u8"
    F64_IN = "const double *", "=u8"
    U64_OUT = "__u64 *", "=u8"
    WAYS_IN = "const struct way *", "=u8"

    @property
    def in_c(self) -> str:
        return self.value[0]

    @property
    def in_numpy(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Lanes:
    """A count of elements: a packet's lanes divided by `per`. `in_c` is the macro for the number of lanes."""

    per: int = 1
    in_c: str = "WIRE_LANES"


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a record: one element, a fixed count, a count by lanes, or a count given by a
    macro's name.
    """

    name: str
    kind: Kind
    meaning: str = ""
    count: int | Lanes | str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A struct. Members are naturally aligned: padding is an explicit member, so that no compiler
    adds any.
    """

    name: str
    members: tuple[Member, ...]
    meaning: str = ""

    def dtype(self, lanes: int = 0, **sizes: int) -> np.dtype:
        """Return the NumPy type for a fabric with this many lanes per packet; `sizes` are the
        macros' values.
        """
        fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = []
        for member in self.members:
            count = member.count
            if count is None:
                fields.append((member.name, member.kind.in_numpy))
                continue
            if isinstance(count, Lanes):
                count = lanes // count.per
            fields.append(
                (member.name, member.kind.in_numpy, (sizes[count] if isinstance(count, str) else count,))
            )
        return np.dtype(fields)

    def offset(self, name: str) -> int:
        """Return the byte offset of a member; no earlier member may be counted in lanes or macros."""
        before = self.members[: [member.name for member in self.members].index(name)]
        return Record(self.name, before).dtype().itemsize if before else 0


def filled(kind: np.dtype, /, **values: npt.ArrayLike) -> np.ndarray:
    """Make a record with these members, zero elsewhere. ValueError for an unknown member."""
    record = np.zeros((), kind)
    for name, value in values.items():
        record[name] = value
    return record


def columns(kind: type[T], records: np.ndarray) -> T:
    """Make a `kind`, a dataclass of Columns, of the members that are its fields: views of the records."""
    return kind(*[records[name] for name in kind.__dataclass_fields__])


def members(kind: Kind, *names: str) -> tuple[Member, ...]:
    """Make members of one kind whose names are self-explanatory."""
    return tuple(Member(name, kind) for name in names)
