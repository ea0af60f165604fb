"""Encode frozen dataclasses as JSON and back, by the declared types of their fields, so that no list of
fields is kept by hand and new fields are included. Pure.

A dataclass becomes an object; tuples, sequences and sets become lists; a mapping with keys other than texts
becomes a list of pairs. NumPy's integers and floats become Python's.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import index
from typing import Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Checks = Mapping[Any, Callable[[Any], Any]]
"""By type, usually a NewType: the function that makes its value from the data, or raises ValueError."""


def to_json(value: Any) -> Any:
    """Encode all fields of a dataclass. Raises TypeError or ValueError if one is not of its declared type."""
    return _encoded(type(value), value)


def from_json(kind: type[T], data: Any, checks: Checks | None = None, *, defaults: bool = False) -> T:
    """Decode the data that `to_json` returned. Raises ValueError or TypeError for other data, and the errors
    of the class itself. With `defaults`, a missing field gets its default: for files of earlier versions.
    """
    made: T = _decoded(kind, data, checks or {}, defaults)
    return made


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def items_of(kind: Any) -> tuple[type, tuple[Any, ...]] | None:
    """Return the class of a collection type (tuple, frozenset or dict), and the types of its items; None for
    other types.
    """
    origin, of = get_origin(kind), get_args(kind)
    if not isinstance(origin, type):
        return None
    for base, made in ((Mapping, dict), (tuple, tuple), (frozenset, frozenset), (Sequence, tuple)):
        if issubclass(origin, base):
            return made, (*of, ...) if base is Sequence else of
    return None


def without_none(kind: Any) -> Any:
    """Return X for the type `X | None`; None for other types."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    (only,) = (each for each in get_args(kind) if each is not type(None))
    return only


def _encoded(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    if isinstance(kind, NewType):
        return _encoded(kind.__supertype__, value)
    if (some := without_none(kind)) is not None:
        return None if value is None else _encoded(some, value)
    if isinstance(kind, type) and is_dataclass(kind):
        _require(isinstance(value, kind), kind, value)
        return {name: _encoded(of, getattr(value, name)) for name, of in types_of(kind).items()}
    if collection := items_of(kind):
        made, of = collection
        if made is dict:
            pairs = [(_encoded(of[0], key), _encoded(of[1], each)) for key, each in value.items()]
            return dict(pairs) if of[0] is str else [list(pair) for pair in pairs]
        _require(not isinstance(value, str), kind, value)
        listed = [_encoded(each, item) for each, item in _paired(kind, of, list(value))]
        return sorted(listed) if made is frozenset else listed
    return _plain(kind, value)


def _plain(kind: Any, value: Any) -> Any:
    if kind is int and not isinstance(value, bool):
        return index(value)
    if kind is float and not isinstance(value, str | bool):
        return float(value)
    _require(kind in (str, bool) and isinstance(value, kind), kind, value)
    return value


def _decoded(kind: Any, data: Any, checks: Checks, defaults: bool) -> Any:
    if kind is Any:
        return data
    if kind in checks:
        return checks[kind](data)
    if isinstance(kind, NewType):
        return _decoded(kind.__supertype__, data, checks, defaults)
    if (some := without_none(kind)) is not None:
        return None if data is None else _decoded(some, data, checks, defaults)
    if isinstance(kind, type) and is_dataclass(kind):
        return _made(kind, data, checks, defaults)
    if collection := items_of(kind):
        made, of = collection
        if made is dict:
            _require(isinstance(data, dict if of[0] is str else list), kind, data)
            pairs = [(key, each) for key, each in (data.items() if of[0] is str else data)]
            return {
                _decoded(of[0], key, checks, defaults): _decoded(of[1], each, checks, defaults)
                for key, each in pairs
            }
        _require(isinstance(data, list | tuple), kind, data)
        return made(_decoded(each, item, checks, defaults) for each, item in _paired(kind, of, data))
    if kind is int:
        _require(type(data) is int, kind, data)
    elif kind is float:
        _require(type(data) in (int, float), kind, data)
    return _plain(kind, data)


def _made(kind: Any, data: Any, checks: Checks, defaults: bool) -> Any:
    _require(isinstance(data, dict), kind, data)
    of = types_of(kind)
    if other := sorted(data.keys() - of.keys()):
        raise ValueError(f"{kind.__name__} has no field {other[0]!r}")
    missing = [
        field.name
        for field in fields(kind)
        if field.name not in data
        and not (defaults and (field.default is not MISSING or field.default_factory is not MISSING))
    ]
    if missing:
        raise ValueError(f"{kind.__name__} without {missing[0]!r}")
    return kind(**{name: _decoded(of[name], each, checks, defaults) for name, each in data.items()})


def _paired(kind: Any, of: Sequence[Any], items: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pair each item of a collection with its type. Raises TypeError if there are more or fewer items."""
    if len(of) == 1 or (len(of) == 2 and of[1] is ...):
        return [(of[0], item) for item in items]
    _require(len(of) == len(items), kind, items)
    return list(zip(of, items, strict=True))


def _require(holds: bool, kind: Any, value: Any) -> None:
    if not holds:
        name = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
        raise TypeError(f"{value!r} is no {name}")
