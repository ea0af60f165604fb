"""Read values from a user's YAML. An error is one line: the key, its value, and what is accepted."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.topology.yaml_text import written

MOST_NAME = 60
MOST_BYTES = 1 << 20
TOP = ("configuration", "jobs file")  # names of whole files, whose keys have no path before them in errors


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file of at most MOST_BYTES. Raises RequestError if it is missing, longer, or
    no text.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RequestError(f"read {path}: not a file; a file of numbers, one a line, is accepted")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise RequestError(f"read {path}: more than {MOST_BYTES} bytes; as many are accepted")
        return content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RequestError(f"read {path}: {reason}") from error


def mapping(raw: Any, path: str, accepted: tuple[str, ...]) -> Mapping[str, Any]:
    """Check that `raw` is a mapping with accepted keys only. Raises RequestError, with the nearest accepted
    key.
    """
    if not isinstance(raw, dict):
        raise RequestError(
            f"{path}: {shown(raw)}; keys and values are accepted, the keys being {listed(accepted)}"
        )
    for key in raw:
        if key not in accepted:
            where = key if path in TOP else f"{path}.{key}"
            near = difflib.get_close_matches(str(key), accepted, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise RequestError(
                f"{where}: {shown(raw[key])}; unknown key; {hint}accepted are {listed(accepted)}"
            )
    return raw


def integer(data: Mapping[str, Any], key: str, default: int, *, low: int, high: int, path: str = "") -> int:
    """Read a whole number from `low` to `high`. Raises RequestError."""
    return whole(data.get(key, default), f"{path}{key}", low, high)


def whole(raw: Any, at: str, low: int, high: int, else_accepted: str = "") -> int:
    """Check a whole number from `low` to `high`. Raises RequestError, which names what else the caller
    accepts.
    """
    if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
        accepted = f"{low}" if low == high else f"a whole number from {low} to {high}"
        raise RequestError(f"{at}: {shown(raw)}; {accepted}{else_accepted} is accepted")
    return raw


def text(raw: Any, at: str) -> str:
    """Check a text that is not empty. Raises RequestError."""
    if not isinstance(raw, str) or not raw:
        raise RequestError(f"{at}: {shown(raw)}; a text is accepted")
    return raw


def is_number(raw: Any) -> bool:
    """Return whether a value is an int or float, but no bool."""
    return isinstance(raw, int | float) and not isinstance(raw, bool)


def listed(words: Iterable[str]) -> str:
    """Join words with commas, at most the first 16."""
    every = list(words)
    return ", ".join(every) if len(every) <= 16 else f"{', '.join(every[:16])} and {len(every) - 16} more"


def shown(raw: Any) -> str:
    """Format a value in one line of at most 60 characters."""
    words = str(raw) if not isinstance(raw, dict | list) else written(raw, in_a_line=True)
    return words if len(words) <= 60 else words[:57] + "..."
