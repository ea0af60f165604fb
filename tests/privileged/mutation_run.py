"""What of the tests of the XDP programs fails, each kind by itself: by kind, a line of what was found, or nothing."""

from __future__ import annotations

from testbed.xdp.program import Programs
from tests.privileged import fuzz_run, model_run, vector_run

PACKETS, SEED = 30_000, 21


def inside(programs: Programs, ports: dict[int, int]) -> dict[str, str]:
    """By kind of test."""
    wrong = {name: lines for name, lines in vector_run.inside(programs, ports).items() if lines}
    said = {"vectors": f"{len(wrong)}, as {next(iter(wrong))!r}" if wrong else "", "in step": ""}
    try:
        model_run.inside(programs, ports, "schedules", "8")
    except AssertionError as error:
        said["in step"] = str(error).splitlines()[0]
    rows = fuzz_run.inside(programs, ports, str(PACKETS), str(SEED))
    told = [line for row in rows for line in (*row["told"], *(f"slot {at}" for at in row["strangers"]))]
    told += [f"counters: {row['uncounted']}" for row in rows if row["uncounted"]]
    said["fuzz"] = told[0] if told else ""
    return said
