"""The format of docs/how-to/: files that a reader writes, commands, and the lines that these print.

- A line "Write `NAME`:" followed by a fenced block is a file.
- A fenced block marked `console` has commands, each after `$ `, and below each command its whole output:
  `...` within a line stands for any text, a line `...` for any number of lines, blanks for any number of
  blanks. A command that ends in ` &` runs in the background until the page ends; its lines are the beginning
  of its output.
- No other block is tested: `sh` has commands for other machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.sources import ROOT

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
ANY = "..."
_BLOCK = re.compile(r"^(?:Write `(?P<name>[\w.-]+)`:\n\n?)?```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Written:
    """A file that the reader writes."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the reader types, and the lines that it must print."""

    words: str
    lines: tuple[str, ...]

    @property
    def is_background(self) -> bool:
        """Return whether the reader continues while it runs."""
        return self.words.endswith(" &")


def steps(page: str) -> Iterator[Written | Command]:
    """Yield the steps of a page's reader, in order. ValueError for a console block that does not begin with a
    command.
    """
    for block in _BLOCK.finditer(page):
        if block["name"]:
            yield Written(block["name"], block["body"])
        elif block["kind"] == "console":
            yield from _commands(block["body"])


def _commands(body: str) -> Iterator[Command]:
    before, *typed = re.split(r"^\$ ", body, flags=re.MULTILINE)
    if before or not typed:
        raise ValueError(f"a console block begins with `$ `, not with {before!r}")
    for each in typed:
        words, *lines = re.sub(r"\\\n\s*", "", each.rstrip("\n")).split("\n")
        yield Command(words, tuple(lines))


def is_printed(command: Command, output: str) -> bool:
    """Return whether a command's output is what its page shows; in the background, whether it begins so."""
    pattern = "".join(_pattern(line) for line in command.lines)
    match = re.match if command.is_background else re.fullmatch
    printed = "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
    return match(pattern, printed) is not None


def _pattern(line: str) -> str:
    if line == ANY:
        return r"(?:.*\n)*?"
    parts = (re.sub(r"(?:\\ )+", " +", re.escape(part)) for part in line.rstrip().split(ANY))
    return ".*".join(parts) + r"\n"
