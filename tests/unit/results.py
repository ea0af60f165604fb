"""Whole results for tests, as the daemon answers with them and `--json` prints them."""

from __future__ import annotations

from typing import Any

from testbed.messages.coding import decode
from testbed.messages.controller import ReconfigurationEvent
from testbed.messages.result import RunResult
from testbed.messages.submission import SubmissionResult
from testbed.messages.traffic import (
    CompletionTimes,
    DatagramCounts,
    GeneratorTraffic,
    LateFlows,
    TrafficEvent,
    TrafficResult,
)

TRUSTED: dict[str, Any] = {
    "trustworthy": True,
    "line": "verdict: trustworthy",
    "reasons": [],
    "notes": [],
}
BOUND: dict[str, Any] = {
    "bound_ms": 8.0,
    "measured_ms": 10.0,
    "rounds": 9,
    "left_out": 1,
    "link": "u1h1 up",
    "link_ms": 7.5,
    "computing_ms": 1.5,
    "starved_ms": 0.25,
    "shared": False,
    "coarse": False,
    "lit_share": 1.0,
    "ratio": 1.25,
    "how": "bound: made up",
}
SPREAD = {"median": 0.25, "max": 0.5}
TELEMETRY: dict[str, Any] = {
    "interval_s": 0.1,
    "samples": 9,
    "sampled_s": 0.8,
    "unsampled_s": 0.0,
    "traffic_s": 4.0,
    "cost_share": 0.01,
    "cores": [],
    "waiting": {"median": None, "max": None},
    "late_ms": {"median": 0.5, "max": 1.5, "p99": 1.25},
    "softnet": {"dropped": 0, "squeezed": 2},
    "device_drops": {},
    "segments_max": {},
    "links": [],
}
MODEL: dict[str, Any] = {"limits": {}, "jobs": [], "ports": []}


def of_core(core: int, busy: float | None) -> dict[str, Any]:
    return {
        "core": core,
        "busy": {"median": busy, "max": busy},
        **dict.fromkeys(("softirq", "steal", "iowait"), SPREAD),
    }


def of_link(name: str, median: float, **changes: Any) -> dict[str, Any]:
    """Return a link's part of a result's telemetry."""
    return {
        "name": name,
        "rate_mbps": 200.0,
        "bytes": 3,
        "most_bytes": 2,
        "utilisation": {"median": median, "max": 1.0},
        "excess": 0.0,
        "queue_drops": 0,
        "queue_bytes_max": 0,
        "bytes_up": 1,
        **changes,
    }


def link(name: str, up: int = 0, down: int = 0, drops: int = 0, **changes: Any) -> dict[str, Any]:
    """Return what a link carried during a job."""
    return {
        "name": name,
        "rate_mbps": 200.0,
        "bytes": up + down,
        "bytes_up": up,
        "bytes_down": down,
        "drops": drops,
        "device_drops": 0,
        **changes,
    }


def worker(rank: int, host: str, stats: Any = None, **changes: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": host,
        "exit_code": 0,
        "log": f"/run/optinc/one/jobs/3/worker-{rank}.log",
        "stacks": None,
        "stats": stats,
        **changes,
    }


def event(number: int, at: float = 100.0, **changes: Any) -> dict[str, Any]:
    """Return a reconfiguration event of the controller's history."""
    return {
        "id": number,
        "time": at,
        "ports": ["u1o1", "u2o1"],
        "asked_ms": 16.0,
        "switch_ms": 10.0,
        "lock_ms": 6.0,
        "circuits_ms": {"u1o1-u2o1": 16.0},
        "failed_locks": {},
        "measured_ms": 16.25,
        "resolution_ms": 0.01,
        "settled_ms": 17.0,
        "since_asked_ms": {"planned": 0.5, "lit": 17.5},
        "removed": [],
        "added": [["u1o1", "u2o1"]],
        **changes,
    }


def read_event(number: int, at: float = 100.0, **changes: Any) -> ReconfigurationEvent:
    return decode(ReconfigurationEvent, event(number, at, **changes), "event")


def result(**changes: Any) -> dict[str, Any]:
    """Return the result of a job."""
    made = {
        "id": 3,
        "testbed": "one",
        "script": "train.py",
        "sync": "inc",
        "placement": ["u1", "u2"],
        "ps_host": None,
        "failure": None,
        "bytes_by": {"packets": 100},
        "groups": [{"workers": [0], "bytes_by": {"gloo": 7}}],
        "workers": [worker(0, "u1h1"), worker(1, "u2h1")],
        "notes": [],
        "asked_sync": "inc",
        "sums": [{"share": 1, "place": "u1", "workers": ["u1h1", "u2h1"], "below": []}],
        "lanes": 64,
        "recovery": "reliable",
        "attempts": [{"generation": 5, "wall_s": 2.0, "failure": None}],
        "wall_s": 2.0,
        "ocs": {"events": []},
        "links": [link("u1h1", 1_000_000, drops=1), link("u2h1", 500_000)],
        "telemetry": TELEMETRY,
        "stragglers": None,
        "optical_losses": {"u1o1": {"dark": 1, "unlit": 0}},
        "other_traffic": [{"link": "u1h1", "protocol": 17, "port": 5001, "bytes": 9, "bytes_up": 3}],
        "bound": BOUND,
        "verdict": TRUSTED,
    }
    return {**made, **changes}


def queued(number: int = 4, name: str = "a", **changes: Any) -> dict[str, Any]:
    """Return a queued job that has ended."""
    made: dict[str, Any] = {
        "id": number,
        "name": name,
        "state": "ended",
        "workers": 2,
        "hosts": ["u1h1", "u1h2"],
        "units": ["u1"],
        "ps_host": None,
        "mode": "inc",
        "inc_unit": "u1",
        "rate_gbps": 10.0,
        "progress": 1.0,
        "arrival_s": 0.0,
        "placed_s": 0.5,
        "ready_s": 1.5,
        "started_s": 2.0,
        "trained_s": 4.5,
        "ended_s": 5.0,
        "restarts": 0,
        "failure": None,
        "cancelled": False,
        "waiting_s": 2.0,
        "start_up_s": 1.0,
        "training_s": 2.5,
        "jct_s": 4.5,
        "iterations": 10,
        "megabytes": 1.0,
        "gigabits": 0.08,
        "rates": [[2, 10.0]],
        "run": result(id=number),
    }
    del made["run"]["ocs"]
    return {**made, **changes}


def submission(*jobs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the result of a submission of these jobs."""
    return {
        "policy": "inc-fcfs",
        "slot_s": 1.0,
        "seed": 1,
        "scale": 200,
        "configuration": "default",
        "jobs": list(jobs),
        "done": len(jobs),
        "failed": 0,
        "cancelled": 0,
        "total_jct_s": 4.5,
        "ct_bti_s": 3.0,
        "reconfigured_connections": 2,
        "reconfigurations": 1,
        "policy_s": 0.01,
        "policy_s_max": 0.01,
        "overruns": 0,
        "policy_failures": 0,
        "last_failure": None,
        "late_slots": 0,
        "complaints": [],
        "slots": [{"slot": 2, "policy_s": 0.01, "set_up": 2, "rates": {"4": 10.0}, "ports": [[0, 1, 2]]}],
        "model": MODEL,
        **changes,
    }


def step(command: str = "fault clear", did_s: float = 3.0, **changes: Any) -> dict[str, Any]:
    """Return a step of a script, done."""
    return {
        "at_s": did_s,
        "began_s": did_s,
        "did_s": did_s,
        "command": command,
        "exit_code": 0,
        "output": "",
        "error": "",
        **changes,
    }


def script(*steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"file": "s.yaml", "testbed": "one", "began": 100.0, "steps": list(steps), **changes}


def read(**changes: Any) -> RunResult:
    return decode(RunResult, result(**changes), "result")


def read_submission(*jobs: dict[str, Any], **changes: Any) -> SubmissionResult:
    return decode(SubmissionResult, submission(*jobs, **changes), "result")


def completion_times(**changes: Any) -> CompletionTimes:
    return CompletionTimes(**{**_TIMES, **changes})


_TIMES: dict[str, Any] = {
    "count": 2,
    "median_ms": 20.5,
    "p99_ms": 40.0,
    "max_ms": 40.0,
    "median_slowdown": 1.5,
    "p99_slowdown": 2.0,
}


def generator_traffic(**changes: Any) -> GeneratorTraffic:
    made: dict[str, Any] = {
        "kind": "incast",
        "flows": 3,
        "finished": 2,
        "failed": 1,
        "unfinished": 0,
        "failures": {"Connection refused": 1},
        "asked_mbps": 12.0,
        "offered_mbps": 12.0,
        "carried_mbps": 8.0,
        "times": completion_times(),
        "sizes": {"small": completion_times()},
        "groups": completion_times(count=1, median_slowdown=None, p99_slowdown=None),
        "datagrams": DatagramCounts(100, 90, 10, 0),
    }
    return GeneratorTraffic(**{**made, **changes})


def traffic(**changes: Any) -> TrafficResult:
    """Return a result of `testbed traffic`."""
    made: dict[str, Any] = {
        "file": "t.yaml",
        "testbed": "one",
        "scale": 1,
        "seed": 1,
        "began": 100.0,
        "seconds": 10.0,
        "wall_s": 10.4,
        "hosts": ("u1h1", "u1h2"),
        "total": generator_traffic(),
        "generators": (generator_traffic(),),
        "lateness": LateFlows(0, 0.0, 0.4),
        "too_fast": 0,
        "cores_busy": 0.25,
        "agents_cpu_s": 1.5,
        "events": (TrafficEvent(1.5, "link set: u1h1, down"),),
        "notes": ("1 flows failed: Connection refused",),
        "trustworthy": True,
        "verdict": "verdict: trustworthy: 0.0% of flows started late, processors 25% busy",
    }
    return TrafficResult(**{**made, **changes})
