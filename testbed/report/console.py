"""The console for rich's tables. Users' texts in them are cleaned; rich's own control sequences stay."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from testbed.client.terminal_text import clean, raw


def standard_output(elsewhere: int) -> Console:
    """Return a console on the standard output, `elsewhere` columns wide if that is no terminal."""
    console = Console(file=raw(sys.stdout), width=None if sys.stdout.isatty() else elsewhere)
    console.push_render_hook(_Cleaning())
    return console


class _Cleaning(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(each) for each in renderables]


class _Cleaned:
    """A table whose texts are cleaned after layout, when rich's own controls are separate segments."""

    def __init__(self, table: ConsoleRenderable) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._table, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)
