"""A job's result as data: its links' counters, the optical events, and its workers' statistics. Pure."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from testbed.messages.coding import decode
from testbed.messages.controller import ReconfigurationEvent
from testbed.messages.links import LinkDelta
from testbed.messages.result import GroupBytes, WorkerResult
from testbed.messages.statistics import Statistics
from testbed.telemetry.samples import LinkCounters
from testbed.wire.transports import GLOO, PACKETS, SERVER

# The bounds of a worker's statistics. For the longest job (MOST_ROWS of testbed/wire/calls, as many spans)
# the backend writes 6.4 MB with 780,000 values; parsing that blocks the daemon for 0.2 s.
MOST_BYTES = 8 << 20
_MOST_VALUES = 1_000_000
_MOST = 1 << 62  # bytes
_SUMMED = {PACKETS: "in the network", SERVER: "by the parameter server"}
# the most bytes that workers send for a byte of a tensor: in packets of 64 lanes; in a ring's two turns
_MOST_SENT = {PACKETS: 1.5, SERVER: 1.2, GLOO: 2.4}
_FEW_BYTES = 1_000_000
_OF_ANY_SCRIPT = {"rank", "delays"}  # all statistics of a worker that made no group of the backend inc
_MOST_DEPTH = 64  # Python's JSON fails at some hundreds


def link_deltas(before: Mapping[str, LinkCounters], after: Mapping[str, LinkCounters]) -> list[LinkDelta]:
    """Compute each link's counters between two readings: bytes with Ethernet headers, and drops."""
    deltas = []
    for name, now in after.items():
        then = before[name]
        up, down = now.bytes_ab - then.bytes_ab, now.bytes_ba - then.bytes_ba
        deltas.append(
            LinkDelta(
                name=name,
                rate_mbps=now.rate_mbps,
                bytes=up + down,
                bytes_up=up,
                bytes_down=down,
                drops=now.drops - then.drops,
                device_drops=now.device_drops - then.device_drops,
            )
        )
    return deltas


def events_in(history: Any) -> tuple[ReconfigurationEvent, ...]:
    """Decode the controller's history of reconfigurations."""
    return decode(tuple[ReconfigurationEvent, ...], history, "history")


def events_after(history: Any, last_id: int) -> tuple[ReconfigurationEvent, ...]:
    """Return the reconfigurations after the one with the number `last_id`."""
    return tuple(event for event in events_in(history) if event.id > last_id)


def last_id(history: Any) -> int:
    return max((event.id for event in events_in(history)), default=0)


class StatsError(Exception):
    """A worker's statistics cannot be part of a result; the message says why."""


def parse_stats(content: bytes) -> Statistics:
    """Parse the statistics that a worker wrote with JobEnv.write_stats. Raises StatsError if they are
    malformed, would block the daemon, or cannot be part of a result.
    """
    if len(content) > MOST_BYTES:
        raise StatsError(f"they have {len(content)} bytes; {MOST_BYTES} are read")
    if content.count(b",") + content.count(b"[") + content.count(b"{") > _MOST_VALUES:
        raise StatsError(f"they have more than {_MOST_VALUES} values")
    try:
        stats = json.loads(content)
    except (ValueError, RecursionError) as error:  # a worker may write anything
        raise StatsError("they are no JSON") from error
    if not isinstance(stats, dict):
        raise StatsError("they are no JSON object")
    if not _is_flat(stats):
        raise StatsError(f"they are nested more than {_MOST_DEPTH} deep")
    return stats


def _is_flat(value: object) -> bool:
    """Return whether a value's nesting is so shallow that a result with it can be written."""
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


def bytes_by_way(stats: Iterable[Statistics | None]) -> dict[str, int]:
    """Count the tensor bytes of all workers by transport: through places that sum (`packets`), a `server`, or
    `gloo`, which carries every collective that is no sum.
    """
    ways: Counter[str] = Counter()
    for left in stats:
        by = left.get("bytes_by") if left else None
        if isinstance(by, dict):
            ways.update({way: size for way, size in by.items() if type(size) is int and 0 < size < _MOST})
    return {way: ways[way] for way in (PACKETS, SERVER, GLOO) if ways[way]}


def bytes_by_group(stats: Sequence[Statistics | None]) -> tuple[GroupBytes, ...]:
    """List the groups that the workers made besides the first, by their ranks, with all members' tensor bytes
    by transport.
    """
    groups: dict[tuple[int, ...], list[Statistics]] = {}
    for left in stats:
        rows = left.get("groups") if left else None
        for row in rows if isinstance(rows, list) else []:
            ranks = row.get("workers") if isinstance(row, dict) else None
            if isinstance(ranks, list) and all(each in range(len(stats)) for each in ranks):
                groups.setdefault(tuple(map(int, ranks)), []).append(row)
    return tuple(GroupBytes(ranks, bytes_by_way(rows)) for ranks, rows in sorted(groups.items()))


def unused(
    transport: str, stats: Sequence[Statistics | None], sent_bytes: int, starts: int = 1
) -> str | None:
    """Return a line for a job that was meant to sum in the network, or at a server, but summed nothing there,
    or little compared with its script's other traffic. `sent_bytes` is what its workers sent over their links
    in all of its `starts`, without retransmissions; `stats` are those of the last start.
    """
    ways, where = bytes_by_way(stats), _SUMMED.get(transport)
    if where is None:
        return None
    sent = f"workers sent {sent_bytes / 1e6:.3g} MB"
    if transport in ways:
        own_bytes = sent_bytes - sum(_MOST_SENT[way] * size for way, size in ways.items())
        if starts > 1 or own_bytes < max(sent_bytes / 2, _FEW_BYTES):
            return None
        other = f"{own_bytes / 1e6:.3g} MB of the {sent_bytes / 1e6:.3g} MB that workers sent"
        return f"most was not summed {where}: {other} was traffic of other kinds"
    if GLOO in ways:
        why = f"gloo carried all that inc was asked for ({ways[GLOO]} bytes)"
    elif any(left.keys() != _OF_ANY_SCRIPT for left in stats if left):
        why = "inc was asked for nothing"
    else:
        why = "the script made no process group of the backend inc"
    return f"nothing was summed {where}: {why}; {sent}"


def missing_statistics(
    stats: Sequence[Statistics | None], owing: Mapping[int, int], notes: Sequence[str] = ()
) -> str | None:
    """Return a line for workers that summed but whose statistics are missing; None if all are there. `owing`
    has the errno of writing them, by rank; `notes` say why written ones cannot be used.
    """
    lost = [rank for rank in sorted(owing) if rank < len(stats) and stats[rank] is None]
    if not lost and not notes:
        return None
    if not lost:
        return "; ".join(notes)
    workers = f"worker{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
    reasons = sorted({os.strerror(owing[rank]) for rank in lost if owing[rank]})
    why = "; ".join([*reasons, *notes]) or "it ended before they were written"
    return f"statistics of {workers} are missing: {why}"


def without_timelines(workers: Iterable[WorkerResult]) -> tuple[WorkerResult, ...]:
    """Drop the workers' timelines, which are long: the bound has been computed from them."""
    return tuple(
        replace(worker, stats={name: value for name, value in worker.stats.items() if name != "timeline"})
        if worker.stats
        else worker
        for worker in workers
    )
