"""The paper's claims about its microbenchmarks, each compared with ours. Pure.

The paper's machine has 8 cores; a claim that fewer cores cannot show has no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reproductions.aleph.micro.tables import Row, medians, pick, trusted
from reproductions.claims import Finding
from reproductions.verdicts import AGREES, DIFFERS, LEVEL, PARTLY, near, of_ratio, of_size
from testbed.figures.verdict_gate import JudgedRow, runs_of
from testbed.messages.coding import UNSET
from testbed.wire.spec import LANES

Report = Mapping[str, Any]
MUCH_LOSS, FULL = 0.01, 0.9
BUSY = "others had the head's core"


def claims(figure: str, report: Report) -> list[Finding]:
    """Judge a figure's claims."""
    rows = medians(report["rows"])
    made = {"table2": _table2, "fig5": _fig5, "fig6": _fig6, "fig7": _fig7, "fig8": _fig8}
    return list(made[figure](rows, report))


def claim(text: str, paper: str, ours: str, verdict: str | None, rows: Iterable[Row] = ()) -> Finding:
    """Make a finding that rests on the times and losses of `rows`. Without rows it is about CPU time alone,
    which other load on the machine does not change.
    """
    if chosen := [JudgedRow.of(row) for row in rows]:
        return Finding(text, paper, ours, verdict, runs_of(chosen), UNSET)
    return Finding(text, paper, ours, verdict, UNSET, "CPU time")


def of_order(held: Iterable[bool]) -> str:
    """Return the verdict word for an order that the paper has at every point: AGREES if it holds at all,
    PARTLY at more than half.
    """
    points = list(held)
    return AGREES if all(points) else PARTLY if 2 * sum(points) > len(points) else DIFFERS


def _whole(rows: Sequence[Row], case: str, lanes: int | None, cores: int = 1) -> Row | None:
    keys: dict[str, Any] = {"case": case, "cores": cores, "target_gbps": None, "offered": None}
    if lanes is not None:
        keys |= {"lanes": lanes}
    if case.startswith("xdp"):
        keys |= {"program": "sum_up"}
    return pick(rows, **keys)


def _sizes(report: Report) -> tuple[int, ...]:
    return tuple(dict.fromkeys((report["gradients"], LANES)))


def _table2(rows: Sequence[Row], report: Report) -> Iterable[Finding]:
    for target, xdp, tcp in ((5.0, 0.3, 3.5), (10.0, 0.6, 7.5)):
        for lanes in _sizes(report):
            ours = cores_for(rows, target, "xdp-native", lanes)
            if ours:
                word = of_size(ours[0], xdp)
                yield claim(f"cores at {target:g} Gb/s, XDP, {lanes} gradients", f"{xdp}", _cores(ours), word)
        for case, words in (("tcp", "64 KiB"), ("tcp-packet", "a packet")):
            ours = cores_for(rows, target, case, None)
            if ours:
                word = of_size(ours[0], tcp)
                yield claim(f"cores at {target:g} Gb/s, TCP, chunks of {words}", f"{tcp}", _cores(ours), word)
    yield from _ratios(rows, report, "as many cores with TCP as with XDP", 7.5 / 0.6, 1)


def _cores(ours: tuple[float, bool]) -> str:
    return f"{ours[0]:.2f}" + ("" if ours[1] else ", from the most that a core takes")


def cores_for(rows: Sequence[Row], target: float, case: str, lanes: int | None) -> tuple[float, bool] | None:
    """Return the cores that a rate of `target` Gb/s needs, and whether the rate was reached. If it was not,
    the cores are computed from the Gb/s per CPU second at full load. None where there is no measurement.
    """
    row = pick(rows, case=case, target_gbps=target, **({"lanes": lanes} if lanes else {}))
    if row is not None and near(row["gbps"], target) and row["loss"] < MUCH_LOSS:
        return float(row["cpu_s"] / row["seconds"] * target / row["gbps"]), True
    whole = _whole(rows, case, lanes)
    return (target / whole["gbps_per_core"], False) if whole else None


def _ratios(rows: Sequence[Row], report: Report, text: str, paper: float, cores: int) -> Iterable[Finding]:
    for lanes in _sizes(report):
        xdp = _whole(rows, "xdp-native", lanes, cores)
        for case, words in (
            ("tcp", "chunks of 64 KiB"),
            ("tcp-packet", "chunks of a packet"),
            ("ps", "in Python"),
        ):
            tcp = _whole(rows, case, None, cores)
            if xdp and tcp and tcp["gbps_per_core"]:
                ratio = xdp["gbps_per_core"] / tcp["gbps_per_core"]
                name = f"{text}: {lanes} gradients, TCP {words}"
                yield claim(name, f"{paper:.1f}x", f"{ratio:.1f}x", of_ratio(ratio, paper))


def _fig5(rows: Sequence[Row], report: Report) -> Iterable[Finding]:
    lanes = report["gradients"]
    for size in _sizes(report):
        row = _whole(rows, "xdp-native", size)
        if row:
            ours = row["gbps_per_core"]
            word = of_size(ours, 17)
            yield claim(f"Gb/s on one core, XDP native, {size} gradients", "17", f"{ours:.1f}", word)
    yield from _ratios(rows, report, "one core, XDP native over TCP", 17 / 1.6, 1)
    counts = sorted({row["cores"] for row in rows})
    order = []
    for cores in counts:
        rates = [
            _whole(rows, name, size, cores)
            for name, size in (("xdp-native", lanes), ("xdp-generic", lanes), ("tcp", None))
        ]
        if all(rates):
            order.append([row["gbps_per_core"] for row in rates if row])
    first = of_order(rates[0] == max(rates) for rates in order)
    yield claim("XDP native has the highest throughput", "always", _points(order, 0), first)
    native, generic = (_whole(rows, f"xdp-{mode}", lanes, counts[-1]) for mode in ("native", "generic"))
    if native and generic:
        ratio = native["gbps_per_core"] / generic["gbps_per_core"]
        word = of_ratio(ratio, 80 / 60)
        yield claim(f"native over generic, {counts[-1]} cores (the paper: 8)", "1.3x", f"{ratio:.1f}x", word)
    ways: tuple[tuple[str, tuple[str, int | None]], ...] = (
        ("XDP native", ("xdp-native", lanes)),
        ("TCP in C", ("tcp", None)),
    )
    for case, key in ways:
        ends = [_whole(rows, key[0], key[1], cores) for cores in (counts[0], counts[-1])]
        if len(counts) > 1 and all(ends):
            totals = [row["gbps_per_core"] * row["cores"] for row in ends if row]
            grown = totals[1] / totals[0]
            word = AGREES if grown > 1 + LEVEL else DIFFERS
            text = f"{case}: throughput of {counts[-1]} cores over one's"
            yield claim(text, "grows", f"{grown:.1f}x", word)
    seen = f"{report['cores']} cores here"
    yield claim("XDP generic: no more than 50 to 60 Gb/s from 3 cores on", "yes", seen, None)


def _points(order: Sequence[Sequence[float]], which: int) -> str:
    return f"at {sum(rates[which] == max(rates) for rates in order)} of {len(order)}"


def _fig6(rows: Sequence[Row], report: Report) -> Iterable[Finding]:
    for mode, at_95 in (("native", 0.001), ("generic", 0.002)):
        mine = [row for row in rows if row["case"] == f"xdp-{mode}" and row["offered"] is not None]
        if not mine:
            continue
        mine = [row for row in mine if trusted(row)]
        if not mine:
            yield claim(f"{mode}: loss by load", "under 1%", BUSY, None)
            continue
        below = [row["loss"] for row in mine if row["load"] <= FULL]
        if below:
            word = of_order(loss <= MUCH_LOSS for loss in below)
            text = f"{mode}: most loss below {FULL:.0%} load"
            yield claim(text, "under 1%", f"{max(below):.2%} ({len(below)} points)", word, mine)
        close = [row for row in mine if 0.92 <= row["load"] <= 0.98]
        if close:
            loss = min(close, key=lambda row: abs(row["load"] - 0.95))["loss"]
            word = AGREES if loss <= 2 * at_95 else DIFFERS
            yield claim(f"{mode}: loss at about 95% load", f"{at_95:.1%}", f"{loss:.2%}", word, close)
        else:
            yield claim(f"{mode}: loss at about 95% load", f"{at_95:.1%}", "no point there", None)
        fits = [row for row in mine if row["offered"] <= 1]
        if mode == "native" and fits:
            most = max(fits, key=lambda row: row["load"])
            word = AGREES if most["loss"] <= MUCH_LOSS else DIFFERS
            text = f"native: loss at the highest load that fits ({most['load']:.0%})"
            yield claim(text, "under 1%", f"{most['loss']:.2%}", word, [most])
    pairs = []
    for offered in sorted({row["offered"] for row in rows if row["offered"] is not None}):
        both = [pick(rows, case=f"xdp-{mode}", offered=offered) for mode in ("native", "generic")]
        pairs.append([row for row in both if row and trusted(row)])
    pairs = [pair for pair in pairs if len(pair) == 2]
    held = [pair[0]["loss"] <= pair[1]["loss"] + LEVEL for pair in pairs]
    if held:
        ours = f"at {sum(held)} of {len(held)}"
        text = "native loses no more than generic, at the same share of its most"
        yield claim(text, "always", ours, of_order(held), [row for pair in pairs for row in pair])


def _fig7(rows: Sequence[Row], report: Report) -> Iterable[Finding]:
    every = sorted({row["asked_per_s"] for row in rows if row["asked_per_s"]})
    for case, words in (("xdp", "into the map"), ("xdp-socket", "to a process")):
        rates, pairs = every, []
        for rate in rates:
            both = [pick(rows, case=name, asked_per_s=rate) for name in (case, "tcp")]
            pairs.append([row for row in both if row and row["median_us"] and trusted(row)])
        if not any(row["case"] == case for row in rows):
            continue
        rates = [rate for rate, pair in zip(rates, pairs, strict=True) if len(pair) == 2]
        pairs = [pair for pair in pairs if len(pair) == 2]
        if not pairs:
            yield claim(f"XDP, {words}: sooner than TCP at every rate", "always", BUSY, None)
            continue
        held = [pair[0]["median_us"] < pair[1]["median_us"] for pair in pairs]
        ours, chosen = f"at {sum(held)} of {len(held)}", [row for pair in pairs for row in pair]
        yield claim(f"XDP, {words}: sooner than TCP at every rate", "always", ours, of_order(held), chosen)
        for at, gain, where in ((0, 569 / 233, "lowest"), (-1, 94 / 42, "highest paced")):
            ratio = pairs[at][1]["median_us"] / pairs[at][0]["median_us"]
            text = f"TCP's time over XDP's, {words}, {where} rate ({rates[at]:g} a second)"
            yield claim(text, f"{gain:.1f}x", f"{ratio:.1f}x", of_ratio(ratio, gain), pairs[at])
    for case, paper in (("xdp", "233 to 42 us"), ("tcp", "569 to 94 us")):
        points = [pick(rows, case=case, asked_per_s=rate) for rate in every]
        mine = [row for row in points if row and row["median_us"] and trusted(row)]
        times = [row["median_us"] for row in mine]
        if len(times) > 1:
            word = AGREES if min(times[1:]) < times[0] else DIFFERS
            yield claim(
                f"{case}: falls as packets come faster",
                paper,
                f"{times[0]:.0f} to {min(times[1:]):.0f} us",
                word,
                mine,
            )


def _fig8(rows: Sequence[Row], report: Report) -> Iterable[Finding]:
    for lanes in _sizes(report):
        xdp = pick(rows, case="xdp-native", lanes=lanes, offered=None)
        for case, words in (("tcp", "chunks of 64 KiB"), ("tcp-packet", "chunks of a packet")):
            tcp = pick(rows, case=case, offered=None)
            if xdp and tcp:
                ratio = xdp["gbps_per_core"] / tcp["gbps_per_core"]
                text = f"copies by the same CPU time, XDP over TCP: {lanes} gradients, TCP {words}"
                yield claim(text, "2.0x", f"{ratio:.1f}x", of_ratio(ratio, 2))
