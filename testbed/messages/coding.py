"""Messages as JSON's data and back, by the declared types of their fields. Pure.

Fields keep their order. A field that is UNSET is left out; a key that a type does not know is passed over, so
that a reader reads what a later version wrote. Numbers stay what they are: see `Number`.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET as UNSET  # a field that is not there
from msgspec import UnsetType as UnsetType

from testbed.errors import TestbedError

T = TypeVar("T")

Number: TypeAlias = int | float
"""A quantity. Not `float`, as which 100 would be decoded as 100.0, and be printed so."""


def as_json(message: Any) -> Any:
    """Return what the module json writes: objects for messages, lists or tuples for what is several."""
    return msgspec.to_builtins(message, enc_hook=_plain)


def encoded(message: Any) -> bytes:
    """Return a message as a line of JSON: as json would write it of `as_json`, but in a third of the time,
    and with null for a number that is none (NaN).
    """
    try:
        return msgspec.json.encode(message, enc_hook=_plain)
    except UnicodeEncodeError:  # half of a pair of surrogates, by which a name has a byte that is no UTF-8
        return json.dumps(as_json(message)).encode()


def plain(message: Any) -> Any:
    """Return a message as the module json reads it: dictionaries and lists, which a script may change."""
    return json.loads(json.dumps(as_json(message)))


def _plain(value: Any) -> Any:
    """Return a value of a class derived from a plain one, such as NumPy's float64, as json writes it."""
    for kind in (float, int, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{value!r} is nothing that JSON has")


def decode(kind: type[T], data: Any, what: str) -> T:
    """Return the message that `as_json` was given. Raises TestbedError, by the name of `what` is read, for
    data of another form.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise TestbedError(f"{what}: not as this version has it: {error}") from error
