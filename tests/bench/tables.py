"""The benchmarks' figures as Markdown tables, and their insertion into the documentation: no number there is
typed by hand.

`python -m tests.bench.tables [--from out/bench] [--into docs/studies/performance.md]`. Without --into they
are printed. In a document each table stands between a line `<!-- bench NAME -->` and the next `<!-- end -->`;
tables without measured figures stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from testbed.topology.model import LinkSpec
from tests.bench.engines import layouts
from tests.bench.host import ROOT
from tests.bench.provenance import depends

GIB = 2**30
WIDTH = 100  # of a document's line


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first hold numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    assert len({len(line) for line in lines}) == 1, f"{head}: rows of other lengths"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measured_on(host: dict[str, Any], name: str) -> str:
    """Return a line with the machine and the code that a table was measured on."""
    commit = (host["commit"] or "none")[:12]
    machine = f"{host['cores']} cores ({host['processor']}), {host['memory_bytes'] / GIB:.0f} GiB"
    return f"Measured on {machine}, Linux {host['kernel']}, commit {commit}. {depends(name)}"


BESIDE_GLOO = ("inc, Mb/s", "gloo, Mb/s", "gloo's time / inc's", "spread")


def beside_gloo(row: dict[str, Any]) -> list[str]:
    """Return the cells of the columns BESIDE_GLOO."""
    inc, gloo = row["found"]["inc"], row["found"].get("gloo")
    return [
        f"{inc['goodput_mbps']:.0f}",
        f"{gloo['goodput_mbps']:.0f}" if gloo else "-",
        f"{row['speedup']:.2f}" if row["speedup"] else "-",
        f"{inc['spread']:.0%}, " + (f"{gloo['spread']:.0%}" if gloo else "-"),
    ]


def unshaped(figures: dict[str, Any]) -> str:
    rows = []
    for row in figures["goodput"]:
        if row["case"] != "unshaped":
            continue
        inc, gloo = row["found"]["inc"], row["found"].get("gloo")
        rows.append(
            [
                f"{row['workers']}",
                *beside_gloo(row),
                f"{inc['machine_us_per_pair']:.2f}",
                f"{inc['worker_us_per_pair']:.2f}",
                f"{gloo['machine_us_per_pair']:.2f}" if gloo and "machine_us_per_pair" in gloo else "-",
            ]
        )
    head = [
        "workers",
        *BESIDE_GLOO,
        "CPU us a pair",
        "its workers' part",
        "gloo, CPU us",
    ]
    return table(head, rows)


def jumbo(figures: dict[str, Any]) -> str:
    rows = []
    before: dict[int, tuple[float, float]] = {}  # by workers, the figures with the smaller packets
    for row in figures["goodput"]:
        if row["case"] != "jumbo":
            continue
        inc = row["found"]["inc"]
        ns = inc["machine_cpu_s"] * 1e9 / (row["bytes"] / 4 * row["workers"] * len(inc["seconds"]))
        small_mbps, small_ns = before.setdefault(row["workers"], (inc["goodput_mbps"], ns))
        rows.append(
            [
                f"{row['workers']}",
                f"{row['mtu']}",
                *beside_gloo(row),
                f"{inc['goodput_mbps'] / small_mbps:.2f}",
                f"{ns:.2f}",
                f"{ns / small_ns:.2f}",
                f"{inc['busy']:.0%}",
            ]
        )
    head = [
        "workers",
        "MTU",
        *BESIDE_GLOO,
        "inc / inc at 1500",
        "CPU ns a gradient",
        "/ at 1500",
        "cores busy",
    ]
    return table(head, rows)


def shaped(figures: dict[str, Any]) -> str:
    rows = []
    for row in figures["goodput"]:
        if row["case"] not in ("shaped", "across"):
            continue
        inc = row["found"]["inc"]
        units = row["units"]
        rows.append(
            [
                f"{row['workers']}" + (f" in {units} units, by a {row['top']}" if units > 1 else ""),
                f"{row['rate_mbps']:g}",
                f"{row['mtu']}",
                f"{1000 * inc['median_s']:.0f}",
                f"{row['over_size']:.3f}",
                f"{row['over_frames']:.3f}",
                f"{row['speedup']:.2f}" if row["speedup"] else "-",
                f"{row['ring'] / row['partial_sums']:.2f}",
                f"{inc['busy']:.0%}",
            ]
        )
    head = [
        "workers",
        "link, Mb/s",
        "MTU",
        "inc, ms",
        "over S / rate",
        "over frames / rate",
        "gloo's time / inc's",
        "ratio of bounds",
        "cores busy",
    ]
    return f"{table(head, rows)}\n\n{queues(figures['buffer_packets'])}"


def queues(packets: int) -> str:
    """Return a sentence on the length of the links' queues, compared with the default."""
    default = LinkSpec(rate_mbps=None).buffer_packets
    beside = "the default" if packets == default else f"the default is {default}"
    return f"The links have `buffer_packets: {packets}`; {beside}."


def aggregators(figures: dict[str, Any]) -> str:
    rates_of = {kind: [run["gbps_per_core"] for run in runs] for kind, runs in figures["cases"].items()}
    ours = statistics.median(rates_of["xdp"])
    rows = [
        [
            figures["names"][kind],
            f"{statistics.median(rates):.2f}",
            f"{min(rates):.2f} to {max(rates):.2f}",
            f"{ours / statistics.median(rates):.1f}",
        ]
        for kind, rates in rates_of.items()
    ]
    program = figures["programs"]["tor_port"]
    alone = program["gbps"]
    beside = "\n".join(
        f'- {alone / statistics.median(rates):.0f} times those of the row "{figures["names"][kind]}".'
        for kind, rates in rates_of.items()
        if kind != "xdp"
    )
    rows.append(
        [
            f"XDP, the program alone: {program['ns'] / program['runs']:.0f} ns a frame",
            f"{alone:.1f}",
            "-",
            "-",
        ]
    )
    text = table(["aggregator", "Gb/s per core", "least to most", "XDP is so many times it"], rows)
    said = "The last row counts only the time within the XDP program. Its Gb/s per core are:"
    return f"{text}\n\n{said}\n\n{beside}"


def tried(figures: dict[str, Any]) -> str:
    parts = []
    sized = [row for row in figures["rows"] if row["group"] == "mtu"]
    if sized:
        rows = [
            [
                row["name"],
                f"{row['workers']}",
                f"{row['inc']['goodput_mbps']:.0f}",
                f"{row['gloo']['goodput_mbps']:.0f}",
                f"{row['inc']['goodput_mbps'] / row['gloo']['goodput_mbps']:.2f}",
                f"{row['us_per_pair']:.2f}",
            ]
            for row in sized
        ]
        parts.append(
            table(["packet size", "workers", "inc, Mb/s", "gloo, Mb/s", "ratio", "CPU us a pair"], rows)
        )
    rows = []
    base: dict[tuple[str, int], float] = {}
    for row in figures["rows"]:
        if row["group"] == "mtu":
            continue
        inc = row["inc"]
        first = base.setdefault((row["group"], row["workers"]), inc["goodput_mbps"])
        rows.append(
            [
                row["name"],
                f"{row['workers']}",
                f"{inc['goodput_mbps']:.0f}",
                f"{inc['least']:.0f} to {inc['most']:.0f}",
                f"{inc['goodput_mbps'] / first - 1:+.0%}",
                f"{inc['goodput_mbps'] / row['gloo']['goodput_mbps']:.2f}" if "gloo" in row else "-",
                f"{row['us_per_pair']:.2f}",
                f"{row['retransmitted']:.0f}",
            ]
        )
    if rows:
        head = [
            "variant",
            "workers",
            "inc, Mb/s",
            "least to most",
            "change",
            "over gloo, run alike",
            "CPU us a pair",
            "sent again",
        ]
        parts.append(table(head, rows))
    return "\n\n".join(parts)


def spent(figures: dict[str, Any]) -> str:
    profile = figures["profile"]
    rows = [
        [name, f"{share:.1%}", f"{profile['us_per_pair'][name]:.2f}"]
        for name, share in profile["shares"].items()
    ]
    said = (
        f"{profile['workers']} workers at MTU {profile['mtu']} have a goodput of "
        f"{profile['goodput_mbps']:.0f} Mb/s each. Together they send {profile['pairs_per_s']:.0f} pushes "
        f"and receive as many results a second. The profiler took {profile['samples']} samples of both "
        "cores:"
    )
    return said + "\n\n" + table(["part", "share", "us a pair"], rows)


def limit(figures: dict[str, Any]) -> str:
    rows = [
        [
            "redirected to a second link, and dropped" if row["mode"] == "redirect" else "dropped",
            f"{row['mtu']}",
            f"{row['senders']}",
            f"{row['frames_per_s']:.0f}",
            f"{row['us']:.2f}",
        ]
        for row in figures["rates"]
    ]
    text = table(["frames", "MTU", "senders", "a second", "CPU us each"], rows)
    sizes = []
    for size in figures["sizes"]:
        if size["attached"]:
            sizes.append([f"{size['mtu']}", "attached", "arrives" if size["arrived"] else "does not arrive"])
        else:
            sizes.append([f"{size['mtu']}", f"`{size['said']}`", "-"])
    return text + "\n\n" + table(["MTU", "native XDP program", "a full frame"], sizes)


def apart(figures: dict[str, Any]) -> str:
    names = {
        "redirect": "a sender's frames, redirected to a second link",
        "sums": "a job of two workers that sums",
        "tcp": "a stream over TCP between two hosts",
    }
    rows = [
        [
            names[row["kind"]],
            f"{row['without']:.0f} {row['unit']}",
            f"{row['attached']:.0f} {row['unit']}",
            f"{row['ratio']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            f"{row['turns']}",
            f"{row['ns_a_run']:.0f}",
            f"{row['runs_per_s']:.0f}",
            f"{row['share']:.2%}",
        ]
        for row in figures["rows"]
    ]
    head = ["what", "not attached", "attached", "ratio", "its middle half", "turns"]
    head += ["ns a run", "runs a second", "of a processor"]
    return f"{table(head, rows)}\n\nThe load average was {figures['load']:.1f} when the bench began."


def engines(figures: dict[str, Any]) -> str:
    rows, notes = [], []
    for row in figures["rows"]:
        start = [row["label"], f"{row['mtu']}"]
        if "skipped" in row:
            rows.append([*start, *["-"] * 6])
            notes.append(f"{row['label']} at MTU {row['mtu']} was not measured: {row['skipped']}.")
            continue
        rows.append(
            [
                *start,
                f"{row['goodput_mbps']:.{0 if row['goodput_mbps'] >= 100 else 1}f}",
                f"{min(row['by_round']):.0f} to {max(row['by_round']):.0f}",
                f"{row['spread']:.0%}",
                f"{row['of_wide']:.2f}" if row["of_wide"] else "-",
                f"{row['machine_s_per_gbit']:.2f}",
                f"{row['switch_us_per_push']:.0f}" if row["switch_us_per_push"] is not None else "-",
            ]
        )
    for mtu in dict.fromkeys(row["mtu"] for row in figures["rows"]):
        if compared := layouts([row for row in figures["rows"] if row["mtu"] == mtu]):
            times, least, most = compared
            notes.append(
                f"At MTU {mtu} BMv2's goodput with wide lanes (64 in a register) is {times:.1f} times that "
                "with one register per lane (least to most of the bench's rounds: "
                f"{least:.1f} to {most:.1f})."
            )
    head = [
        "sums",
        "MTU",
        "Mb/s",
        "least to most",
        "spread",
        "times BMv2, wide",
        "CPU s a Gb",
        "switch's CPU us a push",
    ]
    if bmv2 := figures["bmv2"]:
        notes.append(
            f"BMv2 is simple_switch {bmv2['version']}, {bmv2['logging']}. The bench ran {figures['rounds']} "
            "rounds."
        )
    return table(head, rows) + "\n\n" + "\n".join(notes)


def congestion(figures: dict[str, Any]) -> str:
    deep = {
        row["case"]: row for row in figures["congestion"]
    }  # the deepest queue of each case: others' times are compared with it
    for row in figures["congestion"]:
        if row["buffer_packets"] > deep[row["case"]]["buffer_packets"]:
            deep[row["case"]] = row
    rows = [
        [
            row["title"],
            f"{row['buffer_packets']}",
            " ".join(f"{rate:.1f}" for rate in row["goodput_mbps"]),
            f"{row['used']:.1%}",
            f"{deep[row['case']]['used'] / row['used'] - 1:+.1%}",
            f"{row['again']:.2%}",
            f"{row['drops']}",
            f"{row['jain']:.3f}" if len(row["goodput_mbps"]) > 1 else "-",
            f"{row['window']:.1f}",
        ]
        for row in figures["congestion"]
    ]
    head = [
        "",
        "`buffer_packets`",
        "Mb/s by job",
        "of the link",
        "longer",
        "sent again",
        "drops",
        "Jain's index",
        "window",
    ]
    return table(head, rows)


# name in the document -> the file of its figures, and the function that formats them
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "tried-jumbo": ("tried-jumbo", tried),
    "spent-jumbo": ("spent-jumbo", spent),
    "unshaped": ("goodput", unshaped),
    "jumbo": ("goodput", jumbo),
    "shaped": ("goodput", shaped),
    "aggregators": ("aggregators", aggregators),
    "engines": ("engines", engines),
    "tried": ("tried", tried),
    "spent": ("spent", spent),
    "limit": ("limit", limit),
    "congestion": ("congestion", congestion),
}
# the cases of goodput that a table needs: a run may have others
CASES = {unshaped: ("unshaped",), jumbo: ("jumbo",), shaped: ("shaped", "across")}


def _filled(line: str) -> str:
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def replaced(text: str, name: str, body: str) -> str:
    """Return the document with a table's text inserted, its sentences wrapped at the document's width.
    SystemExit unless the document has exactly one place for it.
    """
    body = "\n".join(line if line.startswith("|") else _filled(line) for line in body.splitlines())
    marks = re.compile(rf"(<!-- bench {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, count = marks.subn(lambda marked: f"{marked[1]}{body}\n{marked[2]}", text)
    if count != 1:
        raise SystemExit(f"bench {name}: {count} places for it in the document; there is to be one")
    return text


def publish(name: str, text: str, figures: dict[str, Any], as_json: Path | None, into: Path | None) -> None:
    """Print a benchmark's only table, with the machine. Where given, write its figures to `as_json` and the
    table into the document `into`.
    """
    if as_json:
        as_json.parent.mkdir(parents=True, exist_ok=True)
        as_json.write_text(json.dumps(figures, indent=2) + "\n")
    body = f"{text}\n\n{measured_on(figures['host'], name)}"
    if into:
        into.write_text(replaced(into.read_text(), name, body))
    print(body)


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tables", description=__doc__)
    parser.add_argument(
        "--from", dest="folder", type=Path, default=ROOT / "out/bench", help="where the JSON files are"
    )
    parser.add_argument("--into", type=Path, help="a document whose tables to replace")
    arguments = parser.parse_args(argv)
    text = arguments.into.read_text() if arguments.into else ""
    for name, (file, show) in TABLES.items():
        path = arguments.folder / f"{file}.json"
        if not path.exists():
            print(f"{name}: {path} is not there; run sudo make bench", file=sys.stderr)
            continue
        figures = json.loads(path.read_text())
        if show in CASES and not any(row["case"] in CASES[show] for row in figures["goodput"]):
            print(f"{name}: {path} is of other cases", file=sys.stderr)
            continue
        body = f"{show(figures)}\n\n{measured_on(figures['host'], name)}"
        if arguments.into:
            text = replaced(text, name, body)
        else:
            print(f"<!-- bench {name} -->\n{body}\n<!-- end -->\n")
    if arguments.into:
        arguments.into.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
