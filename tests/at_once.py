"""Run several programs at the same time, each in namespaces of its own; they share nothing but
processor time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Name, Found = TypeVar("Name"), TypeVar("Found")


def at_once(runs: Mapping[Name, Callable[[], Found]], together: int | None = None) -> dict[Name, Found]:
    """Run all functions, `together` at a time (None: as many as there are processors), and return their
    results by name. Waits until all have ended, then raises the first error.
    """
    with ThreadPoolExecutor(together or os.cpu_count()) as pool:
        waiting = {name: pool.submit(run) for name, run in runs.items()}
    return {name: each.result() for name, each in waiting.items()}
