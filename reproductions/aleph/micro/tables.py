"""The microbenchmarks' numbers: medians over rounds, whether they are trustworthy, and tables. Pure apart
from printing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reproductions.tables import plain

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
Report = Mapping[str, Any]

TITLES = {
    "xdp-native": "XDP native",
    "xdp-generic": "XDP generic",
    "tcp": "TCP in C, chunks of 64 KiB",
    "tcp-gro": "TCP in C, segments merged (GRO)",
    "tcp-packet": "TCP in C, chunks of a packet",
    "ps": "TCP, PS in Python",
    "xdp": "XDP, into the map",
    "xdp-socket": "XDP, to a process",
}
WAITED = 0.05
"""Share of a window, or of a packet's time, for which the head was ready to run without a core. Above it,
other processes distort the number.
"""
_KEYS = ("case", "lanes", "cores", "program", "offered", "target_gbps", "asked_per_s")


def key_of(row: Row) -> tuple[Any, ...]:
    """Return the values that identify a measurement across rounds."""
    rate = None if row.get("offered") is not None or row.get("target_gbps") else row.get("asked_per_s")
    return (*(row.get(key) for key in _KEYS[:-1]), rate)


def medians(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Merge the rounds of each measurement into one row; each float becomes its median over the rounds."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    merged = []
    for group in groups.values():
        numbers = {}
        for name, value in group[0].items():
            if isinstance(value, float):
                numbers[name] = statistics.median(
                    row[name] for row in group if isinstance(row[name], int | float)
                )
        runs = {"run": [row["run"] for row in group]} if all("run" in row for row in group) else {}
        merged.append({**group[0], **numbers, **runs})
    return merged


def judge(rows: Iterable[dict[str, Any]]) -> None:
    """Set each measurement's verdict: trustworthy if the median of its rounds is."""
    made = list(rows)
    by = {key_of(row): trusted(row) for row in medians(made)}
    for row in made:
        row["verdict"] = {"trustworthy": by[key_of(row)]}


def pick(rows: Iterable[Row], **keys: Any) -> Row | None:
    """Return the first row with these values, or None."""
    for row in rows:
        if all(row.get(name) == value for name, value in keys.items()):
            return row
    return None


def trust(rows: Sequence[Row]) -> dict[str, Any]:
    """Count the measurements during which no other process used the head's cores. Where hosts share those
    cores (too many were asked for), the CPU time still counts and the rate does not.
    """
    timed = [row for row in rows if "waited" in row]
    good = sum(map(trusted, timed))
    reasons: dict[str, int] = {}
    if shared := sum(row["shared"] for row in timed):
        reasons["hosts on the head's cores: only what is per CPU second counts"] = shared
    if late := sum(row["waited"] > WAITED and not row["shared"] for row in timed):
        reasons[f"the head waited for a core for more than {WAITED:.0%} of the time"] = late
    return {"trustworthy": good, "of": len(timed), "reasons": reasons}


def said(row: Row) -> str:
    """Return a measurement's name for the progress display."""
    words = [TITLES[row["case"]]]
    if row.get("lanes"):
        words.append(f"{row['lanes']} gradients")
    if row.get("cores"):
        words.append(f"{row['cores']} core{'s' * (row['cores'] > 1)}")
    if row.get("gbps") is not None:
        words.append(f"{row['gbps_per_core']:.1f} Gb/s a core")
    if row.get("median_us") is not None:
        words.append(f"{row['per_s']:.0f} a second: {row['median_us']:.0f} us")
    return ", ".join(words)


def show(report: Report, console: Console) -> None:
    """Print a report's tables."""
    rows = medians(report["rows"])
    shows = {"table2": _costs, "fig5": _costs, "fig6": _losses, "fig7": _times, "fig8": _costs}
    console.print(
        f"{report['cores']} cores; {report['rounds']} rounds of {report['seconds']:g} s; medians; Gb/s of "
        "gradients; a core: per CPU second of the head",
        highlight=False,
    )
    shows[report["figure"]](rows, console)
    table = plain("What the paper says", "", "paper", "ours", "verdict")
    for claim in report["claims"]:
        table.add_row(claim["text"], claim["paper"], claim["ours"], claim["verdict"] or "not to be seen")
    console.print(table)
    trusted = report["trust"]
    if trusted["of"]:
        console.print(
            f"trustworthy: {trusted['trustworthy']} of {trusted['of']} measurements"
            + "".join(f"; {count}: {reason}" for reason, count in trusted["reasons"].items()),
            highlight=False,
        )


def title_of(row: Row) -> str:
    """Return the title of a measurement's case, with the size of its packets."""
    lanes = f", {row['lanes']} gradients" if row.get("lanes") else ""
    alone = ", counted and dropped" if row.get("program") == "take_only" else ""
    title = "TCP in C" if "median_us" in row and row["case"] == "tcp" else TITLES[row["case"]]
    return title + lanes + alone


def trusted(row: Row) -> bool:
    """Return whether no other process used the head's cores during this measurement."""
    return bool(row.get("waited", 0.0) <= WAITED and not row.get("shared"))


def _costs(rows: Sequence[Row], console: Console) -> None:
    columns = ("cores", "asked", "Gb/s", "load", "Gb/s a core", "ns a packet", "loss")
    table = plain("The head's cost", "", *columns)
    for row in rows:
        packet = row.get("ns_per_packet")
        asked = row.get("target_gbps") or row.get("offered")
        table.add_row(
            title_of(row),
            str(row["cores"]),
            "all" if not asked else f"{asked:g} Gb/s" if row.get("target_gbps") else f"{asked:.0%}",
            f"{row['gbps']:.2f}",
            f"{row['load']:.0%}",
            f"{row['gbps_per_core']:.2f}",
            f"{packet:.0f}" if packet else "",
            f"{row['loss']:.2%}",
        )
    console.print(table)


def _losses(rows: Sequence[Row], console: Console) -> None:
    table = plain("Loss by the head's load", "", "offered", "packets/s", "load", "loss")
    for row in rows:
        offered = "as many as are taken" if row["offered"] is None else f"{row['offered']:.0%}"
        table.add_row(
            title_of(row), offered, f"{row['per_s']:.0f}", f"{row['load']:.0%}", f"{row['loss']:.3%}"
        )
    console.print(table)


def _times(rows: Sequence[Row], console: Console) -> None:
    table = plain(
        "Time of one packet, there and back", "", "packets/s", "median us", "mean us", "99 % us", "lost"
    )
    for row in rows:
        if row["median_us"] is not None:
            table.add_row(
                title_of(row),
                f"{row['per_s']:.0f}",
                f"{row['median_us']:.1f}",
                f"{row['mean_us']:.1f}",
                f"{row['p99_us']:.0f}",
                f"{row['loss']:.1%}",
            )
    console.print(table)
