"""The test of bpf/link_faults.c for a planted bug: frame by frame against its model, with all faults at
once.
"""

from __future__ import annotations

from typing import Any

from tests.privileged import fault_wire

FAULT = {"loss": 0.1, "duplicate": 0.05, "reorder": 0.05, "corrupt": 0.1, "distance": 7, "seed": 3}
FRAMES = 3_001


def findings() -> dict[str, str]:
    """Return by kind of test a line on the failure, or "" where the test passed. AssertionError where the
    program does not load.
    """
    try:
        report: dict[str, Any] = fault_wire.findings("frames", fault=FAULT, count=FRAMES, timeout_s=200)
    except AssertionError as error:
        if "load the fault program" in str(error):
            raise
        return {"frames": str(error).splitlines()[0]}
    counts = {name: report["counters"][name] for name in report["model"]}
    wrong = report["wrong"] or report["extra"] or counts != report["model"]
    return {"frames": f"{report['wrong']} wrong, {report['extra']} extra, {counts}" if wrong else ""}
