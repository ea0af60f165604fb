"""Records made for tests: a job's result as `testbed run --json` has it, and records of such results."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.client.caller import Caller
from testbed.records.record import FILE, Record, SetUp
from testbed.records.recorder import Asked, recording
from testbed.records.store import Store

SET_UP = SetUp(
    options={"sync": "inc", "arguments": ["--turns", "12"]},
    seeds={"ocs": 1},
    inputs=(),
    testbed={"name": "one", "pid": 7, "configuration": "default"},
    network={"circuits": [["u1o1", "u2o1"]], "faults": [], "links": []},
    versions={"python": "3.11.2"},
    source={"commit": "abc", "changed": False},
    environment={"OMP_NUM_THREADS": "1"},
    host={"name": "here", "cores": 2},
)


def result(round_ms: float = 10.0, **changes: Any) -> dict[str, Any]:
    """Return a job's result, as far as it is read here."""
    return {
        "id": 3,
        "failure": None,
        "wall_s": 2.0,
        "workers": [
            {"log": "/run/optinc/one/jobs/3/worker-0.log", "stats": {"retransmits": 3, "allreduce": None}},
            {
                "log": "/run/optinc/one/jobs/3/worker-1.log",
                "stats": {"retransmits": 2, "allreduce": {"count": 4, "busy_s": 0.1}},
            },
        ],
        "links": [{"bytes": 1_000_000, "drops": 1}, {"bytes": 500_000, "drops": 0}],
        "telemetry": {"samples": 9},
        "bound": {"measured_ms": round_ms, "bound_ms": 8.0, "ratio": round_ms / 8.0},
        "verdict": {"trustworthy": True, "line": "verdict: trustworthy", "reasons": [], "notes": []},
        **changes,
    }


def record(
    store: Store,
    results: Sequence[Mapping[str, Any]],
    command: str = "run",
    inputs: Sequence[tuple[str, Path]] = (),
    **set_up: Any,
) -> Record:
    """Return a record of these results, with changes to SET_UP, as its command would have left it."""
    caller = Caller.of_this_process()
    with recording(Asked(command, ["x.py"], {}, inputs), store, caller) as recorder:
        for each in results:
            with recorder.run() as run:
                run.take(each)
    assert recorder.folder is not None
    made = Record.read(recorder.folder)
    known = replace(SET_UP, inputs=made.set_up.inputs, **set_up)
    (made.folder / FILE).write_text(json.dumps(replace(made, set_up=known).to_json()))
    return Record.read(made.folder)


def options(folder: Path | None = None, no_record: bool = False) -> Namespace:
    return Namespace(records=folder, no_record=no_record)
