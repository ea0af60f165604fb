"""Runs of programs in namespaces of their own, side by side: nothing but processor time ties one to
another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Name, Found = TypeVar("Name"), TypeVar("Found")


def at_once(runs: Mapping[Name, Callable[[], Found]], together: int | None = None) -> dict[Name, Found]:
    """Run all at once, as many `together` as there are processors unless a number is given, and return their
    results by name. Returns, or fails, when all have ended.
    """
    with ThreadPoolExecutor(together or os.cpu_count()) as pool:
        waiting = {name: pool.submit(run) for name, run in runs.items()}
    return {name: each.result() for name, each in waiting.items()}
