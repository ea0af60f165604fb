"""A job's result as data: what its links carried, what the optics did, how each worker went. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from testbed.telemetry.samples import LinkCounters

_MOST_DEPTH = 64  # of a worker's statistics; Python's JSON ends at some hundreds


def link_deltas(
    before: Mapping[str, LinkCounters], after: Mapping[str, LinkCounters]
) -> list[dict[str, Any]]:
    """What each link carried between two readings, both directions and their sum, in bytes with Ethernet
    headers, and what it lost; of the drops, `device_drops` were not those of a full queue.
    """
    deltas = []
    for name, now in after.items():
        then = before[name]
        up, down = now.bytes_ab - then.bytes_ab, now.bytes_ba - then.bytes_ba
        deltas.append(
            {
                "name": name,
                "rate_mbps": now.rate_mbps,
                "bytes": up + down,
                "bytes_up": up,
                "bytes_down": down,
                "drops": now.drops - then.drops,
                "device_drops": now.device_drops - then.device_drops,
            }
        )
    return deltas


def events_after(history: Iterable[Mapping[str, Any]], last_id: int) -> list[dict[str, Any]]:
    """The reconfigurations that came after the one numbered `last_id`."""
    return [dict(event) for event in history if event["id"] > last_id]


def last_id(history: Iterable[Mapping[str, Any]]) -> int:
    return max((int(event["id"]) for event in history), default=0)


def parse_stats(content: bytes | None) -> dict[str, Any] | None:
    """What a worker left with JobEnv.write_stats; None when it left nothing that reads, or that a result
    cannot hold.
    """
    try:
        stats = json.loads(content or b"")
    except (ValueError, RecursionError):  # a worker may leave nothing, and what it leaves is its own business
        return None
    return stats if isinstance(stats, dict) and _is_flat(stats) else None


def _is_flat(value: object) -> bool:
    """Whether it is nested so little that writing a result which has it in it comes to an end."""
    layer = [value]
    for _ in range(_MOST_DEPTH):
        layer = [
            each
            for outer in layer
            if isinstance(outer, dict | list)
            for each in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(each, dict | list)
        ]
        if not layer:
            return True
    return False


def without_timelines(report: dict[str, Any]) -> dict[str, Any]:
    """The report with what workers left but their timelines: the bound is made of them, and they are long."""
    workers = [
        {
            **worker,
            "stats": worker["stats"]
            and {name: value for name, value in worker["stats"].items() if name != "timeline"},
        }
        for worker in report["workers"]
    ]
    return {**report, "workers": workers}
