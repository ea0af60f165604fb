"""Make records for tests: a job's result as `testbed run --json` prints it, and records of such results."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.client.caller import Caller
from testbed.messages.coding import decode
from testbed.messages.result import BoundResult, RunResult
from testbed.records.facts import RecordedHost, RecordedNetwork, RecordedSource, RecordedTestbed
from testbed.records.outcome import KINDS, Outcome
from testbed.records.record import FILE, Record, SetUp
from testbed.records.recorder import Asked, recording
from testbed.records.store import Store
from tests.unit import results

SET_UP = SetUp(
    options={"sync": "inc", "arguments": ["--turns", "12"]},
    seeds={"ocs": 1},
    inputs=(),
    testbed=RecordedTestbed("one", 7, "default"),
    network=RecordedNetwork((("u1o1", "u2o1"),), (), ()),
    versions={"python": "3.11.2"},
    source=RecordedSource("abc", False),
    environment={"OMP_NUM_THREADS": "1"},
    host=RecordedHost("here", cores=2),
)


def result(round_ms: float = 10.0, **changes: Any) -> dict[str, Any]:
    """Return a job's result, as `--json` prints it."""
    workers = [
        results.worker(0, "u1h1", {"retransmits": 3, "allreduce": None}),
        results.worker(1, "u2h1", {"retransmits": 2, "allreduce": {"count": 4, "busy_s": 0.1}}),
    ]
    bound = {**results.BOUND, "measured_ms": round_ms, "ratio": round_ms / 8.0}
    return results.result(**{"workers": workers, "bound": bound, **changes})


def run_result(round_ms: float = 10.0, **changes: Any) -> RunResult:
    return decode(RunResult, result(round_ms, **changes), "result")


def bound_of(outcome: Outcome) -> BoundResult:
    """Return the bound of a job that has one."""
    assert isinstance(outcome, RunResult)
    assert outcome.bound is not None
    return outcome.bound


def outcome(data: Mapping[str, Any], command: str = "run") -> Outcome:
    """Decode a printed result into its command's type; return it as it is if the command has none."""
    read: Outcome = decode(KINDS[command], data, "result") if command in KINDS else data
    return read


def record(
    store: Store,
    results: Sequence[Mapping[str, Any]],
    command: str = "run",
    inputs: Sequence[tuple[str, Path]] = (),
    **set_up: Any,
) -> Record:
    """Store a record of these results as the command would, with SET_UP (and changes to it) as its set-up."""
    caller = Caller.of_this_process()
    with recording(Asked(command, ["x.py"], {}, inputs), store, caller) as recorder:
        for each in results:
            with recorder.run() as run:
                run.take(outcome(each, command))
    assert recorder.folder is not None
    made = Record.read(recorder.folder)
    known = replace(SET_UP, inputs=made.set_up.inputs, **set_up)
    (made.folder / FILE).write_text(json.dumps(replace(made, set_up=known).to_json()))
    return Record.read(made.folder)


def options(folder: Path | None = None, no_record: bool = False) -> Namespace:
    return Namespace(records=folder, no_record=no_record)
