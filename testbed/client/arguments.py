"""Parse a command's arguments: an error is one line, and options cannot be shortened, because a word that
begins like an option may be the script's. Imports the standard library only.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

_SAID: tuple[tuple[str, str], ...] = (  # argparse's message about a word, and ours
    (r"argument (?P<name>.+?): invalid (?:int|integer) value: '(?P<word>.*)'", "a whole number is accepted"),
    (r"argument (?P<name>.+?): invalid (?:float|number) value: '(?P<word>.*)'", "a number is accepted"),
    (
        r"argument (?P<name>.+?): invalid choice: '(?P<word>.*)' \(choose from (?P<choices>.*)\)",
        "{choices} are accepted",
    ),
)
_MISSING = r"the following arguments are required: (?P<names>.*)"
_ARGUMENT = r"argument (?P<name>.+?): (?P<rest>.*)"
_UNKNOWN = r"unrecognized arguments: (?P<words>.*)"


class Parser(argparse.ArgumentParser):
    """A parser of argparse that reports an error in one line and accepts no shortened option."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        super().__init__(*words, **{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """End the process with code 2, after a line that names the bad word and the accepted ones."""
        self.exit(2, f"{self.prog}: {in_a_line(message)}; see {self.prog} --help\n")


def in_a_line(message: str) -> str:
    """Translate an argparse message into the project's words; a message that is not known stays, as one
    line.
    """
    message = " ".join(message.split())
    for looks, accepted in _SAID:
        if match := re.fullmatch(looks, message):
            choices = match.groupdict().get("choices", "").replace("'", "")
            name, word = match.group("name", "word")
            name = f"{name} " if name.startswith("-") else ""  # positional: no name
            return f"{name}{word}: {accepted.format(choices=choices)}"
    if match := re.fullmatch(_MISSING, message):
        return match.expand(r"\g<names> is missing")
    if match := re.fullmatch(_UNKNOWN, message):
        return match.expand(r"\g<words>: not known here")
    if match := re.fullmatch(_ARGUMENT, message):
        return match.expand(r"\g<name>: \g<rest>")
    return message
