"""Progress of runs on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from testbed.client.terminal_text import line, raw

EVERY_S = 10.0


@contextmanager
def progress(title: str, total: int, *, lines: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each run that is done, of `total`. Without a terminal, print
    a line at the start and then progress lines: one for each run with `lines`, else at most one every
    `EVERY_S`.
    """
    console = Console(file=raw(sys.stderr))
    began, done = time.monotonic(), 0
    printed_s = began

    def report(text: str) -> None:
        print(f"{title}: {text}", file=sys.stderr, flush=True)

    if not console.is_terminal:
        report(f"{total} runs" if total != 1 else "1 run")
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(title, total=total)

        def on_done(name: str) -> None:
            nonlocal done, printed_s
            done += 1
            bars.update(bar, advance=1, description=line(name) if lines else title)
            now_s = time.monotonic()
            if not console.is_terminal and (lines or now_s - printed_s >= EVERY_S):
                printed_s = now_s
                left_s = (now_s - began) / done * (total - done)
                left = f", about {left_s:.0f} s more" if done < total else ""
                report(f"{done}/{total} after {now_s - began:.0f} s{left}{f': {name}' if lines else ''}")

        yield on_done
