"""What of the tests of the XDP programs fails, each kind by itself: by kind, a line of what was found, or
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.dataplanes.xdp.program import Programs
from tests.privileged import fuzz_run, model_run, vector_run

PACKETS, SEED, EXAMPLES = 30_000, 21, "8"


def inside(programs: Programs, ports: dict[int, int]) -> dict[str, str]:
    """By kind of test."""
    kinds: dict[str, Callable[[], str]] = {
        "vectors": lambda: _of_vectors(vector_run.inside(programs, ports)),
        "in step": lambda: (
            "" if model_run.inside(programs, ports, "schedules", EXAMPLES) else "nothing was tried"
        ),
        "fuzz": lambda: _of_fuzz(fuzz_run.inside(programs, ports, str(PACKETS), str(SEED))),
    }
    said = {}
    for name, run in kinds.items():
        try:
            said[name] = run()
        except AssertionError as error:
            said[name] = (str(error) or "an assertion").splitlines()[0]
    return said


def _of_vectors(lines: dict[str, list[str]]) -> str:
    wrong = [name for name, said in lines.items() if said]
    return f"{len(wrong)}, as {wrong[0]!r}" if wrong else ""


def _of_fuzz(rows: list[dict[str, Any]]) -> str:
    told = [line for row in rows for line in (*row["told"], *(f"slot {at}" for at in row["strangers"]))]
    told += [f"counters: {row['uncounted']}" for row in rows if row["uncounted"]]
    return told[0] if told else ""
