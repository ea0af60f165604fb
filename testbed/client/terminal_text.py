"""Texts for a terminal, without what a terminal would carry out. Imports the standard library alone.

Names, notes, errors and files come from users and are read by others, root among them: an escape sequence in
one of them could set the title of the reader's terminal, fill its clipboard, or hide what stands beside it.
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
"""Unicode's categories of controls (C0, DEL, C1), formats (bidirectional overrides, marks of no width),
halves of pairs, what is private or unassigned, and separators of lines.
"""


def clean(text: str) -> str:
    """Return a text with each character that has no shape as its escape, `\\x1b`; new lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character not in _KEPT and unicodedata.category(character) in _WITHOUT_SHAPE
        else character
        for character in text
    )


def line(text: str) -> str:
    """Return a text that is to be one line: its new lines and tabs are escaped, too."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def lines(data: Any) -> Any:
    """Return JSON's data, or frozen data made of it, with each text in it, keys too, as one line."""
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
    """Return the fields that a dataclass is made of; None of another class."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(each.name for each in dataclasses.fields(kind) if each.init)


class Cleaned:
    """A text stream whose texts are cleaned; `raw` is the one below, for a command's own control sequences
    and for what a user's own job writes.
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
    """Return the stream below one that cleans, or the stream itself."""
    return cast(TextIO, getattr(stream, "raw", stream)) if isinstance(stream, Cleaned) else stream


@contextlib.contextmanager
def cleaned() -> Iterator[None]:
    """Clean what is written to standard output and standard error while the block lasts."""
    with contextlib.redirect_stdout(_cleaned(sys.stdout)), contextlib.redirect_stderr(_cleaned(sys.stderr)):
        yield


def _cleaned(stream: TextIO | None) -> TextIO | None:
    return None if stream is None else cast(TextIO, Cleaned(raw(stream)))  # None: closed before Python began
