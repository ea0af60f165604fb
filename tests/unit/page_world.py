"""Answers of a made-up testbed, as its daemon and controller give them, for the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.client.main_facts import MainState
from testbed.client.runtime import Runtime
from testbed.messages.coding import decode
from testbed.messages.status import Status
from testbed.webpage.source import PageSource
from tests.unit import results

NOW = 2_000_000_000.0
UP_S = 300.0
TRUSTED = {"trustworthy": True, "line": "verdict: trustworthy: within 3 %", "reasons": [], "notes": []}


def host(name: str, unit: str, job: int | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "ip": "",
        "rate_mbps": 100.0,
        "cpus": None,
        "job": job,
        "commands_of": [],
        "second_name": None,
        "exec": None,
    }


def link(name: str, up: int = 0, down: int = 0, is_up: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "rate_mbps": 100.0,
        "bytes": up + down,
        "bytes_up": up,
        "bytes_down": down,
        "drops": 3,
        "up": is_up,
        "queued_bytes": 1514,
    }


def job(number: int = 7) -> dict[str, Any]:
    return {
        "id": number,
        "state": "running",
        "user": "me",
        "script": "train.py",
        "sync": "inc",
        "hosts": ["u1h1", "u2h1"],
        "ps_host": None,
        "other_hosts": [],
        "sums": None,
        "running_s": 61.5,
        "progress": [40, 41],
        "summed_bytes": 2_500_000,
        "service": None,
        "waiting": None,
        "blocks": None,
        "uses": {"circuits": [["u1o1", "u2o1"]], "links": ["u1h1"], "places": ["u1"]},
    }


def fault(**counters: int) -> dict[str, Any]:
    """Return a fault on a link of the first host, with its counters."""
    return {
        "link": "u1h1",
        "direction": "up",
        "loss": 0.1,
        "duplicate": 0.0,
        "reorder": 0.0,
        "corrupt": 0.0,
        "distance": 50,
        "seed": 1,
        "counters": {"lost": 0, "duplicated": 0, "held": 0, "corrupted": 0, **counters},
    }


def queued(number: int, name: str, state: str = "queued", **changes: Any) -> dict[str, Any]:
    """Return a job in the queue."""
    return {
        "id": number,
        "name": name,
        "state": state,
        "workers": 2,
        "hosts": [],
        "units": [],
        "ps_host": None,
        "mode": None,
        "inc_unit": None,
        "rate_gbps": 0.0,
        "progress": 0.0,
        "arrival_s": 3.0,
        "placed_s": None,
        "ready_s": None,
        "started_s": None,
        "trained_s": None,
        "ended_s": None,
        "restarts": 0,
        "failure": None,
        "cancelled": False,
        **changes,
    }


def queue(*jobs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a session with these jobs."""
    return {
        "policy": "tw",
        "slot": 3,
        "slot_s": 2.0,
        "seconds": 6.5,
        "jobs": list(jobs),
        "reconfigured_connections": 4,
        "reconfigurations": 2,
        "overruns": 0,
        "policy_failures": 1,
        "complaints": [],
        **changes,
    }


def status(**changes: Any) -> dict[str, Any]:
    """Return `testbed status --json` of two racks and a pod, with a job over a circuit."""
    units = [
        {
            "name": name,
            "kind": "gpu",
            "hosts": 2,
            "optical_ports": 2,
            "planes": {},
            "engine": "xdp",
            "restarts": 0,
            "link_rates_mbps": {},
        }
        for name in ("u1", "u2")
    ]
    racks = [{"name": "u3r1", "hosts": 1, "restarts": 0}]
    units.append({**units[0], "name": "u3", "hosts": 1, "optical_ports": 1, "racks": racks})
    hosts = [
        host("u1h1", "u1", 7),
        host("u1h2", "u1"),
        host("u2h1", "u2", 7),
        host("u2h2", "u2"),
        host("u3r1h1", "u3"),
    ]
    ports = ("u1o1", "u1o2", "u2o1", "u2o2", "u3o1")
    return {
        "name": "made-up",
        "state": "ready",
        "pid": 4242,
        "user": "me",
        "configuration": "three",
        "scale": 200.0,
        "uptime_s": UP_S,
        "units": units,
        "hosts": hosts,
        "core": None,
        "circuits": [["u1o1", "u2o1"], ["u1o2", "u3o1"]],
        "circuit_jobs": [
            {"circuit": ["u1o1", "u2o1"], "jobs": [7]},
            {"circuit": ["u1o2", "u3o1"], "jobs": []},
        ],
        "dark": ["u1o2", "u3o1"],
        "down": [],
        "failed_locks": {},
        "timetable": None,
        "controller": {
            "state": "running",
            "restarts": 0,
            "library": "os-ken 4",
            "lacks": [],
            "ready": True,
        },
        "datapath": "netdev",
        "jobs": [job()],
        "schedule": None,
        "cores_busy": [0.25, 1.0],
        "links": [link(each["name"]) for each in hosts] + [link("u3r1")] + [link(port) for port in ports],
        "calendar": [],
        "calendar_overrun": 0,
        "kept_apart": None,
        "gone_links": {},
        "faults": [],
        "log": "/run/log",
        **changes,
    }


def read(answer: dict[str, Any]) -> Status:
    """Decode an answer as a reader of the status does."""
    return decode(Status, answer, "status")


def ended(number: int, job_id: int, failure: str | None = None) -> dict[str, Any]:
    """Return a journal entry of a job that has ended."""
    return {
        "number": number,
        "time": NOW - 100,
        "kind": "ended",
        "text": f"job {job_id} is done",
        "job": {
            "id": job_id,
            "began": NOW - 160,
            "pairs": [["u1", "u2"]],
            "sync": "ring",
            "user": "me",
            "script": "old.py",
            "hosts": ["u1h1", "u2h1"],
            "ps_host": None,
            "failure": failure,
            "verdict": None if failure else TRUSTED,
            "notes": ["restart 1 of at most 2"],
            "ratio": None if failure else 1.034,
            "measured_ms": None if failure else 250.0,
            "retransmits": 0 if failure else 11,
        },
    }


def change(number: int, at: float, removed: Any = (), added: Any = (), ms: float | None = 500.0) -> Any:
    """Return a reconfiguration event of the controller's history."""
    return results.event(
        number,
        at,
        asked_ms=499.0,
        measured_ms=ms if added else None,
        removed=[list(pair) for pair in removed],
        added=[list(pair) for pair in added],
    )


class World:
    """A testbed whose answers a test sets, and which records what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.status: dict[str, Any] | Exception = status()
        self.entries: list[dict[str, Any]] = [ended(1, 5)]
        self.running: list[dict[str, Any]] = [
            {"id": 7, "began": NOW - 61.5, "pairs": [["u1", "u2"]], "verdict": TRUSTED}
        ]
        self.changes: list[Any] = [change(1, NOW - 120, [("u1o1", "u3o1")], [("u1o1", "u2o1")])]
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.source = PageSource(LivingRuntime("made-up", folder), self.call, lambda: self.now)

    def call(self, path: Path, op: str, timeout_s: float = 0.0, **arguments: Any) -> Any:
        self.asked.append((op, arguments))
        if op == "status":
            if isinstance(self.status, Exception):
                raise self.status
            return self.status
        if op == "journal":
            new = [entry for entry in self.entries if entry["number"] > arguments["after"]]
            return {"entries": new, "running": self.running}
        if op == "crossings":
            return {"u1o1": {"lit": 900, "dark": 5, "unlit": 0}, "u1o2": {"lit": 0, "dark": 0, "unlit": 7}}
        if op == "circuits":
            lit = {"circuits": [["u1o2", "u3o1"]], "dark": [], "failed_locks": {}, "down": []}
            return {"event": None, "lost": []} if arguments else lit
        assert op == "history"
        return [event for event in self.changes if event["id"] > arguments["after"]]

    def later(self, seconds: float, **changes: Any) -> None:
        """Advance the time, and change the status."""
        self.now += seconds
        assert isinstance(self.status, dict)
        self.status = {**self.status, "uptime_s": self.status["uptime_s"] + seconds, **changes}


class LivingRuntime(Runtime):
    """The runtime folder of a testbed that claims to be running."""

    def require_alive(self) -> None:
        pass

    def read_main(self) -> MainState | None:
        return MainState("made-up", 4242, "me", "three", "ready")
