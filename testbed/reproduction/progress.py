"""The progress of runs on the standard error: a bar on a terminal, else a line for each run where asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress(title: str, total: int, *, lines: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield what is to be called with the name of each run that is done, of `total`. With `lines` each is
    told where there is no terminal, too.
    """
    console = Console(stderr=True)
    began, done = time.monotonic(), 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(title, total=total)

        def on_done(name: str) -> None:
            nonlocal done
            done += 1
            bars.update(bar, advance=1, description=name if lines else title)
            if lines and not console.is_terminal:
                seconds = time.monotonic() - began
                print(f"{title}: {done}/{total} after {seconds:.0f} s: {name}", file=sys.stderr, flush=True)

        yield on_done
