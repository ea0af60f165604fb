"""A job's result as data: what its links carried, what the optics did, how each worker went. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from testbed.telemetry.samples import LinkCounters


def link_deltas(before: Mapping[str, LinkCounters], after: Mapping[str, LinkCounters]) -> list[dict[str, Any]]:
    """What each link carried between two readings, both directions and their sum, in bytes with Ethernet headers, and what it lost;
    of the drops, `device_drops` were not those of a full queue.
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
    """What a worker left with JobEnv.write_stats; None when it left nothing that reads."""
    try:
        stats = json.loads(content or b"")
    except (ValueError, RecursionError):  # a worker may leave nothing, and what it leaves is its own business
        return None
    return stats if isinstance(stats, dict) else None


def without_timelines(report: dict[str, Any]) -> dict[str, Any]:
    """The report with what workers left but their timelines: the bound is made of them, and they are long."""
    workers = [
        {**worker, "stats": worker["stats"] and {**worker["stats"], "timeline": None}} for worker in report["workers"]
    ]
    return {**report, "workers": workers}
