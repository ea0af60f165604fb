"""Trio-ML: switches sum in block records, and do not wait for stragglers. Importing this package loads
neither the system nor its program: commands read its counts without them.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "SYSTEMS":
        from testbed.systems.trio.system import Trio

        return (Trio(),)
    if name == "PROGRAMS":
        from testbed.systems.trio.program import BlockProgram

        return (BlockProgram(),)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
