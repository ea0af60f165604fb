"""The console of rich's tables. What they show of a user's texts is cleaned; rich's own sequences stay."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from testbed.client.terminal_text import clean, raw


def standard_output(elsewhere: int) -> Console:
    """Return a console on the standard output, `elsewhere` columns wide where that is no terminal."""
    console = Console(file=raw(sys.stdout), width=None if sys.stdout.isatty() else elsewhere)
    console.push_render_hook(_Cleaning())
    return console


class _Cleaning(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(each) for each in renderables]


class _Cleaned:
    """A table whose texts are cleaned once they are laid out, when rich's own controls are set apart."""

    def __init__(self, table: ConsoleRenderable) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._table, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)
