"""Convert messages to JSON data and back, by the declared types of their fields. Pure.

Fields keep their order. A field that is UNSET is omitted; a key that a type does not know is ignored, so that
a reader can read the messages of a later version. Numbers keep their kind: see `Number`.
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
"""A quantity. Not `float`, which would decode 100 as 100.0 and print it so."""


def as_json(message: Any) -> Any:
    """Convert a message to data for `json.dump`: objects for messages, lists or tuples for sequences."""
    return msgspec.to_builtins(message, enc_hook=_plain)


def encoded(message: Any) -> bytes:
    """Encode a message as a line of JSON: the same as `json.dumps(as_json(message))`, but in a third of the
    time, and with null for NaN.
    """
    try:
        return msgspec.json.encode(message, enc_hook=_plain)
    except UnicodeEncodeError:  # a lone surrogate, by which a name holds a byte that is not UTF-8
        return json.dumps(as_json(message)).encode()


def plain(message: Any) -> Any:
    """Convert a message to data as `json.loads` returns it: dictionaries and lists, which a script may
    change.
    """
    return json.loads(json.dumps(as_json(message)))


def _plain(value: Any) -> Any:
    """Convert a value of a class derived from a plain one, such as NumPy's float64, to the plain class."""
    for kind in (float, int, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{value!r} is nothing that JSON has")


def decode(kind: type[T], data: Any, what: str) -> T:
    """Make a message from the data that `as_json` returned. Raises TestbedError, with `what` as the name of
    the data, for data of another form.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise TestbedError(f"{what}: not as this version has it: {error}") from error
