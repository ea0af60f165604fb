"""The words by which a user means several links: a unit's name, for all of its own, and `all`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from testbed.errors import RequestError

ALL = "all"  # in the place of a link's name
_UNIT = re.compile(r"u[0-9]+")


def meant(words: Sequence[str], links: Sequence[str]) -> list[str]:
    """Return the links that these words mean, each once, in their order: a link's own name, a unit's for its
    hosts', racks' and optical ports', `all` for every one. Names that are neither stay as they are, for
    whoever knows what to say of them. RequestError for `all` or a unit without any.
    """
    names: list[str] = []
    for word in words:
        if word == ALL:
            of_it = list(links)
        elif _UNIT.fullmatch(word):
            of_it = [link for link in links if re.match(rf"{word}[hocr]", link)]
        else:
            of_it = [word]
        if not of_it:
            units = sorted({match[0] for link in links if (match := _UNIT.match(link))}, key=_number)
            accepted = f"; units with links that have: {', '.join(units)}" if units else ""
            what = "this testbed has" if word == ALL else "there is"
            raise RequestError(f"{word}: {what} no link with a rate{accepted}")
        names += of_it
    return list(dict.fromkeys(names))


def _number(unit: str) -> int:
    return int(unit[1:])
