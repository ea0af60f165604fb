"""The slate of a job's service: the self-reported status of the process that serves the workers.

A few KiB of memory that this process writes and the daemon reads in place. Pure: a sequence number, a length
and a JSON object, of which a reader trusts nothing, since the writer is the user's:

  u64 sequence (odd while it is written) | u64 length | JSON
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, Protocol

from testbed.wire.settings import written

SLATE_BYTES: Final = 16 << 10
MOST_LINES: Final = 24  # lines that a reader shows
MOST_CHARACTERS: Final = 160
_HEAD: Final = struct.Struct("<QQ")
_TRIES: Final = 8


class ServiceStanding(Protocol):
    """The status of a service: a dataclass, with `lines` for people."""

    @property
    def lines(self) -> tuple[str, ...]: ...


def write(memory: memoryview, standing: ServiceStanding) -> None:
    """Replace the slate's contents. ValueError if they do not fit."""
    text = written(standing).encode()
    if _HEAD.size + len(text) > len(memory):
        raise ValueError(f"{len(text)} bytes: the slate has room for {len(memory) - _HEAD.size}")
    sequence, _ = _HEAD.unpack_from(memory)
    sequence |= 1
    _HEAD.pack_into(memory, 0, sequence, 0)
    memory[_HEAD.size : _HEAD.size + len(text)] = text
    _HEAD.pack_into(memory, 0, sequence, len(text))
    _HEAD.pack_into(memory, 0, sequence + 1, len(text))


def read(memory: memoryview) -> dict[str, Any] | None:
    """Return the slate's contents; None if there are none, or they are malformed. `lines` are a few strings
    without control characters.
    """
    try:
        said = json.loads(_text(memory))
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("lines"), list):
        return None
    lines = ["".join(c if c.isprintable() else "?" for c in str(each)) for each in said["lines"][:MOST_LINES]]
    return {**said, "lines": [each[:MOST_CHARACTERS] for each in lines]}


def _text(memory: memoryview) -> bytes:
    """Return the text of one consistent write; empty if there is none, or writes never pause."""
    for _ in range(_TRIES):
        sequence, length = _HEAD.unpack_from(memory)
        if sequence % 2 or not 0 < length <= len(memory) - _HEAD.size:
            continue
        text = bytes(memory[_HEAD.size : _HEAD.size + length])
        if _HEAD.unpack_from(memory)[0] == sequence:
            return text
    return b""
