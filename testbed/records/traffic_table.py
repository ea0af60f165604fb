"""Format the result of `testbed traffic` as lines. Pure."""

from __future__ import annotations

from testbed.client.terminal_text import line
from testbed.messages.traffic import CompletionTimes, GeneratorTraffic, TrafficResult

_HEAD: tuple[str, ...] = (
    "",
    "flows",
    "finished",
    "asked",
    "offered",
    "carried",
    "median",
    "p99",
    "max",
    "slowdown",
    "p99",
)

_GROUPS = {"incast": "rounds", "coflows": "coflows"}


def traffic_lines(result: TrafficResult) -> list[str]:
    """Format a result: a row for each generator and each size class, then what else a reader must know."""
    rows = [_HEAD]
    for number, each in enumerate(result.generators):
        rows += _rows(f"{number} {each.kind}", each)
    if len(result.generators) > 1:
        rows += _rows("all", result.total)
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = [
        "  ".join((cell.ljust if not at else cell.rjust)(widths[at]) for at, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    lines.append(
        f"rates in Mb/s, times in ms, at scale {result.scale}; slowdown: over the time that the links allow"
    )
    late = result.lateness
    if late.late:
        lines.append(f"late: {late.late} flows started late, the worst by {late.worst_ms:.1f} ms")
    lines += [f"at {event.at_s:.2f} s: {event.text}" for event in result.events]
    lines += [f"note: {note}" for note in result.notes]
    return [line(each) for each in (*lines, result.verdict)]


def _rows(name: str, traffic: GeneratorTraffic) -> list[tuple[str, ...]]:
    asked = "-" if traffic.asked_mbps is None else f"{traffic.asked_mbps:.4g}"
    rates = (asked, f"{traffic.offered_mbps:.4g}", f"{traffic.carried_mbps:.4g}")
    rows = [(name, str(traffic.flows), str(traffic.finished), *rates, *_times(traffic.times))]
    if len(traffic.sizes) > 1:
        for size, times in traffic.sizes.items():
            rows.append((f"  {size}", "", str(times.count), "", "", "", *_times(times)))
    if traffic.groups is not None and (word := _GROUPS.get(traffic.kind)):
        rows.append((f"  {word}", "", str(traffic.groups.count), "", "", "", *_times(traffic.groups)))
    return rows


def _times(times: CompletionTimes) -> tuple[str, ...]:
    values = (times.median_ms, times.p99_ms, times.max_ms, times.median_slowdown, times.p99_slowdown)
    return tuple("-" if each is None else f"{each:.3g}" if each < 100 else f"{each:.0f}" for each in values)
