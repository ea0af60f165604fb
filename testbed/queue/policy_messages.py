"""The messages between the daemon and the process of a policy: lines of JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class PolicyMessage:
    """A message of a policy's process, unchecked: that it is ready, with the policy's name; why it refused to
    be made; or the answer to the state with this number. An answer has the decision as `encoding.to_json`
    encodes it and its computing time in seconds, or the error that the policy raised, in one line.
    """

    ready: Any = None
    refused: Any = None
    number: Any = None
    took_s: Any = None
    decision: Any = None
    raised: Any = None

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Read a line; keys without a meaning are ignored. Raises ValueError, TypeError or RecursionError for
        anything but an object.
        """
        data = dict(json.loads(line))
        return cls(**{each.name: data[each.name] for each in fields(cls) if each.name in data})

    def line(self) -> bytes:
        """Return the line with the fields that are set."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return json.dumps({name: value for name, value in values if value is not None}).encode() + b"\n"
