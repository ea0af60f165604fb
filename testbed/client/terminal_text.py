"""Escape the control characters in text for a terminal. Imports the standard library only.

Users choose names, notes, errors and files, and others read them, root among them: an escape sequence could
set the title of the reader's terminal, fill its clipboard, or hide text beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TextIO, cast

_KEPT = frozenset("\n\t")
_WITHOUT_SHAPE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""The Unicode categories that are escaped: controls (C0, DEL, C1), formats (bidirectional overrides,
zero-width marks), surrogates, private and unassigned characters, and separators of lines and paragraphs.
"""


def clean(text: str) -> str:
    """Escape each character without a shape, as `\\x1b`; newlines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character not in _KEPT and unicodedata.category(character) in _WITHOUT_SHAPE
        else character
        for character in text
    )


def line(text: str) -> str:
    """Make a text one line: clean it, and escape newlines and tabs too."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def lines(data: Any) -> Any:
    """Apply `line` to every text in JSON data, keys too, or in frozen dataclasses made of it."""
    if isinstance(data, str):
        return line(data)
    if isinstance(data, Mapping):
        return {lines(key): lines(value) for key, value in data.items()}
    if isinstance(data, (list, tuple, frozenset)):
        return type(data)(map(lines, data))
    names = _fields(data.__class__)
    return data if names is None else data.__class__(**{name: lines(getattr(data, name)) for name in names})


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's init fields; None for another class."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(each.name for each in dataclasses.fields(kind) if each.init)


class Cleaned:
    """A text stream that cleans what is written. `raw` is the stream below, for a command's own control
    sequences and for the output of a user's own job.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(clean(text))
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: TextIO) -> TextIO:
    """Return the stream below a cleaning one, or the stream itself."""
    return cast(TextIO, getattr(stream, "raw", stream)) if isinstance(stream, Cleaned) else stream


@contextlib.contextmanager
def cleaned() -> Iterator[None]:
    """Clean all text written to standard output and error until the block ends."""
    with contextlib.redirect_stdout(_cleaned(sys.stdout)), contextlib.redirect_stderr(_cleaned(sys.stderr)):
        yield


def _cleaned(stream: TextIO | None) -> TextIO | None:
    return None if stream is None else cast(TextIO, Cleaned(raw(stream)))  # None: closed before Python began
