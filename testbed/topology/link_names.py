"""Expand the words by which a user names several links: a unit's name, for all its links, and `all`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from testbed.errors import RequestError

ALL = "all"  # in place of a link's name
_UNIT = re.compile(r"u[0-9]+")


def meant(words: Sequence[str], links: Sequence[str]) -> list[str]:
    """Return the links that these words name, each once, in order: a link by its own name, a unit's hosts',
    racks', optical ports' and core links by the unit's, all links by `all`. Unknown names stay as they are,
    for the caller to refuse. Raises RequestError for `all` or a unit without links.
    """
    names: list[str] = []
    for word in words:
        if word == ALL:
            expanded = list(links)
        elif _UNIT.fullmatch(word):
            expanded = [link for link in links if re.match(rf"{word}[hocr]", link)]
        else:
            expanded = [word]
        if not expanded:
            units = sorted({match[0] for link in links if (match := _UNIT.match(link))}, key=_number)
            accepted = f"; units with links that have: {', '.join(units)}" if units else ""
            what = "this testbed has" if word == ALL else "there is"
            raise RequestError(f"{word}: {what} no link with a rate{accepted}")
        names += expanded
    return list(dict.fromkeys(names))


def _number(unit: str) -> int:
    return int(unit[1:])
