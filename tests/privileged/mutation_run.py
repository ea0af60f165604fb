"""The tests of the XDP programs for a planted bug, each kind by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.dataplanes.xdp.program import Programs
from tests.privileged import fuzz_run, model_run, vector_run

PACKETS, SEED, EXAMPLES = 30_000, 21, "8"


def inside(programs: Programs, ports: dict[int, int]) -> dict[str, str]:
    """Return by kind of test a line on the failure, or "" where the test passed."""
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
    differences = [
        line for row in rows for line in (*row["differences"], *(f"slot {at}" for at in row["strangers"]))
    ]
    differences += [f"counters: {row['uncounted']}" for row in rows if row["uncounted"]]
    return differences[0] if differences else ""
