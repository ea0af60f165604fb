"""What of the tests of bpf/link_faults.c fails: frame by frame against its model, all faults together."""

from __future__ import annotations

from typing import Any

from tests.privileged.fault_wire import findings

FAULT = {"loss": 0.1, "duplicate": 0.05, "reorder": 0.05, "corrupt": 0.1, "distance": 7, "seed": 3}
FRAMES = 3_001


def found() -> dict[str, str]:
    """By kind of test; an empty line where nothing was found. AssertionError where the program does not
    load.
    """
    try:
        told: dict[str, Any] = findings("frames", fault=FAULT, count=FRAMES, timeout_s=200)
    except AssertionError as error:
        if "load the fault program" in str(error):
            raise
        return {"frames": str(error).splitlines()[0]}
    counts = {name: told["counters"][name] for name in told["model"]}
    wrong = told["wrong"] or told["extra"] or counts != told["model"]
    return {"frames": f"{told['wrong']} wrong, {told['extra']} extra, {counts}" if wrong else ""}
