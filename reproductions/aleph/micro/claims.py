"""The paper's claims about its microbenchmarks, each compared with ours. Pure.

The paper's machine has 8 cores; a claim that fewer cores cannot show has no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reproductions.aleph.micro.report import MicroReport
from reproductions.aleph.micro.rows import CopyRow, MicroRow, RoundTripRow, SumRow, known
from reproductions.aleph.micro.tables import medians
from reproductions.claims import Finding
from reproductions.verdicts import AGREES, DIFFERS, LEVEL, PARTLY, near, of_ratio, of_size
from testbed.figures.verdict_gate import runs_of
from testbed.messages.coding import UNSET
from testbed.wire.spec import LANES

MUCH_LOSS, FULL = 0.01, 0.9
BUSY = "others had the head's core"


def of_sums(figure: str, report: MicroReport[SumRow]) -> list[Finding]:
    """Judge the claims of table 2, figure 5 or figure 6."""
    judge = {"table2": _table2, "fig5": _fig5, "fig6": _fig6}[figure]
    return list(judge(medians(report.rows), report))


def of_round_trips(report: MicroReport[RoundTripRow]) -> list[Finding]:
    """Judge the claims of figure 7."""
    return list(_fig7(medians(report.rows)))


def of_copies(report: MicroReport[CopyRow]) -> list[Finding]:
    """Judge the claims of figure 8."""
    return list(_fig8(medians(report.rows), _sizes(report.gradients)))


def claim(text: str, paper: str, ours: str, verdict: str | None, rows: Sequence[MicroRow] = ()) -> Finding:
    """Make a finding that rests on the times and losses of `rows`. Without rows it is about CPU time alone,
    which other load on the machine does not change.
    """
    if rows:
        return Finding(text, paper, ours, verdict, runs_of(rows), UNSET)
    return Finding(text, paper, ours, verdict, UNSET, "CPU time")


def of_order(held: Iterable[bool]) -> str:
    """Return the verdict word for an order that the paper has at every point: AGREES if it holds at all,
    PARTLY at more than half.
    """
    points = list(held)
    return AGREES if all(points) else PARTLY if 2 * sum(points) > len(points) else DIFFERS


def _whole(rows: Sequence[SumRow], case: str, lanes: int | None, cores: int = 1) -> SumRow | None:
    """Return the first measurement of a case at full load, of the figure's program. Any size if `lanes` is
    None.
    """
    for row in rows:
        is_full = known(row.target_gbps) is None and known(row.offered) is None
        is_sized = lanes is None or row.lanes == lanes
        is_summing = not case.startswith("xdp") or row.program == "sum_up"
        if (row.case, row.cores) == (case, cores) and is_full and is_sized and is_summing:
            return row
    return None


def _sizes(gradients: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((gradients, LANES)))


def _table2(rows: Sequence[SumRow], report: MicroReport[SumRow]) -> Iterable[Finding]:
    for target, xdp, tcp in ((5.0, 0.3, 3.5), (10.0, 0.6, 7.5)):
        for lanes in _sizes(report.gradients):
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


def cores_for(
    rows: Sequence[SumRow], target: float, case: str, lanes: int | None
) -> tuple[float, bool] | None:
    """Return the cores that a rate of `target` Gb/s needs, and whether the rate was reached. If it was not,
    the cores are computed from the Gb/s per CPU second at full load. None where there is no measurement.
    """
    paced = [
        row
        for row in rows
        if (row.case, row.target_gbps) == (case, target) and (not lanes or row.lanes == lanes)
    ]
    if paced and near(paced[0].gbps, target) and paced[0].loss < MUCH_LOSS:
        return float(paced[0].cpu_s / paced[0].seconds * target / paced[0].gbps), True
    whole = _whole(rows, case, lanes)
    return (target / whole.gbps_per_core, False) if whole else None


def _ratios(
    rows: Sequence[SumRow], report: MicroReport[SumRow], text: str, paper: float, cores: int
) -> Iterable[Finding]:
    for lanes in _sizes(report.gradients):
        xdp = _whole(rows, "xdp-native", lanes, cores)
        for case, words in (
            ("tcp", "chunks of 64 KiB"),
            ("tcp-packet", "chunks of a packet"),
            ("ps", "in Python"),
        ):
            tcp = _whole(rows, case, None, cores)
            if xdp and tcp and tcp.gbps_per_core:
                ratio = xdp.gbps_per_core / tcp.gbps_per_core
                name = f"{text}: {lanes} gradients, TCP {words}"
                yield claim(name, f"{paper:.1f}x", f"{ratio:.1f}x", of_ratio(ratio, paper))


def _fig5(rows: Sequence[SumRow], report: MicroReport[SumRow]) -> Iterable[Finding]:
    lanes = report.gradients
    for size in _sizes(report.gradients):
        row = _whole(rows, "xdp-native", size)
        if row:
            ours = row.gbps_per_core
            word = of_size(ours, 17)
            yield claim(f"Gb/s on one core, XDP native, {size} gradients", "17", f"{ours:.1f}", word)
    yield from _ratios(rows, report, "one core, XDP native over TCP", 17 / 1.6, 1)
    counts = sorted({row.cores for row in rows})
    order = []
    for cores in counts:
        rates = [
            _whole(rows, name, size, cores)
            for name, size in (("xdp-native", lanes), ("xdp-generic", lanes), ("tcp", None))
        ]
        if all(rates):
            order.append([row.gbps_per_core for row in rates if row])
    first = of_order(rates[0] == max(rates) for rates in order)
    yield claim("XDP native has the highest throughput", "always", _points(order, 0), first)
    native, generic = (_whole(rows, f"xdp-{mode}", lanes, counts[-1]) for mode in ("native", "generic"))
    if native and generic:
        ratio = native.gbps_per_core / generic.gbps_per_core
        word = of_ratio(ratio, 80 / 60)
        yield claim(f"native over generic, {counts[-1]} cores (the paper: 8)", "1.3x", f"{ratio:.1f}x", word)
    ways: tuple[tuple[str, tuple[str, int | None]], ...] = (
        ("XDP native", ("xdp-native", lanes)),
        ("TCP in C", ("tcp", None)),
    )
    for case, key in ways:
        ends = [_whole(rows, key[0], key[1], cores) for cores in (counts[0], counts[-1])]
        if len(counts) > 1 and all(ends):
            totals = [row.gbps_per_core * row.cores for row in ends if row]
            grown = totals[1] / totals[0]
            word = AGREES if grown > 1 + LEVEL else DIFFERS
            text = f"{case}: throughput of {counts[-1]} cores over one's"
            yield claim(text, "grows", f"{grown:.1f}x", word)
    seen = f"{report.cores} cores here"
    yield claim("XDP generic: no more than 50 to 60 Gb/s from 3 cores on", "yes", seen, None)


def _points(order: Sequence[Sequence[float]], which: int) -> str:
    return f"at {sum(rates[which] == max(rates) for rates in order)} of {len(order)}"


def _fig6(rows: Sequence[SumRow], report: MicroReport[SumRow]) -> Iterable[Finding]:
    for mode, at_95 in (("native", 0.001), ("generic", 0.002)):
        mine = [row for row in rows if row.case == f"xdp-{mode}" and known(row.offered) is not None]
        if not mine:
            continue
        mine = [row for row in mine if row.is_undisturbed]
        if not mine:
            yield claim(f"{mode}: loss by load", "under 1%", BUSY, None)
            continue
        below = [row.loss for row in mine if row.load <= FULL]
        if below:
            word = of_order(loss <= MUCH_LOSS for loss in below)
            text = f"{mode}: most loss below {FULL:.0%} load"
            yield claim(text, "under 1%", f"{max(below):.2%} ({len(below)} points)", word, mine)
        close = [row for row in mine if 0.92 <= row.load <= 0.98]
        if close:
            loss = min(close, key=lambda row: abs(row.load - 0.95)).loss
            word = AGREES if loss <= 2 * at_95 else DIFFERS
            yield claim(f"{mode}: loss at about 95% load", f"{at_95:.1%}", f"{loss:.2%}", word, close)
        else:
            yield claim(f"{mode}: loss at about 95% load", f"{at_95:.1%}", "no point there", None)
        fits = [row for row in mine if _share(row) <= 1]
        if mode == "native" and fits:
            most = max(fits, key=lambda row: row.load)
            word = AGREES if most.loss <= MUCH_LOSS else DIFFERS
            text = f"native: loss at the highest load that fits ({most.load:.0%})"
            yield claim(text, "under 1%", f"{most.loss:.2%}", word, [most])
    pairs = []
    for offered in sorted({_share(row) for row in rows if known(row.offered) is not None}):
        at = {row.case: row for row in reversed(rows) if row.offered == offered}
        both = [at.get(f"xdp-{mode}") for mode in ("native", "generic")]
        pairs.append([row for row in both if row and row.is_undisturbed])
    pairs = [pair for pair in pairs if len(pair) == 2]
    held = [pair[0].loss <= pair[1].loss + LEVEL for pair in pairs]
    if held:
        ours = f"at {sum(held)} of {len(held)}"
        text = "native loses no more than generic, at the same share of its most"
        yield claim(text, "always", ours, of_order(held), [row for pair in pairs for row in pair])


def _share(row: SumRow) -> float:
    """Return the offered share of the highest rate of a row that has one."""
    return known(row.offered) or 0.0


def _fig7(rows: Sequence[RoundTripRow]) -> Iterable[Finding]:
    every = sorted({row.asked_per_s for row in rows if row.asked_per_s})
    for case, words in (("xdp", "into the map"), ("xdp-socket", "to a process")):
        rates, pairs = every, []
        for rate in rates:
            both = [_timed(rows, name, rate) for name in (case, "tcp")]
            pairs.append([time for time in both if time])
        if not any(row.case == case for row in rows):
            continue
        rates = [rate for rate, pair in zip(rates, pairs, strict=True) if len(pair) == 2]
        pairs = [pair for pair in pairs if len(pair) == 2]
        if not pairs:
            yield claim(f"XDP, {words}: sooner than TCP at every rate", "always", BUSY, None)
            continue
        held = [xdp.median_us < tcp.median_us for xdp, tcp in pairs]
        ours, chosen = f"at {sum(held)} of {len(held)}", [time.row for pair in pairs for time in pair]
        yield claim(f"XDP, {words}: sooner than TCP at every rate", "always", ours, of_order(held), chosen)
        for at, gain, where in ((0, 569 / 233, "lowest"), (-1, 94 / 42, "highest paced")):
            xdp, tcp = pairs[at]
            ratio = tcp.median_us / xdp.median_us
            text = f"TCP's time over XDP's, {words}, {where} rate ({rates[at]:g} a second)"
            yield claim(text, f"{gain:.1f}x", f"{ratio:.1f}x", of_ratio(ratio, gain), [xdp.row, tcp.row])
    for case, paper in (("xdp", "233 to 42 us"), ("tcp", "569 to 94 us")):
        points = [time for rate in every if (time := _timed(rows, case, rate))]
        times = [time.median_us for time in points]
        if len(times) > 1:
            word = AGREES if min(times[1:]) < times[0] else DIFFERS
            yield claim(
                f"{case}: falls as packets come faster",
                paper,
                f"{times[0]:.0f} to {min(times[1:]):.0f} us",
                word,
                [time.row for time in points],
            )


class RowTime(NamedTuple):
    """A row and its median time, which is above 0."""

    row: RoundTripRow
    median_us: float


def _timed(rows: Sequence[RoundTripRow], case: str, rate: float) -> RowTime | None:
    """Return the first row of a case at a rate, with its time; None where it has none or is disturbed."""
    for row in rows:
        if (row.case, row.asked_per_s) == (case, rate):
            return RowTime(row, row.median_us) if row.median_us and row.is_undisturbed else None
    return None


def _fig8(rows: Sequence[CopyRow], sizes: Sequence[int]) -> Iterable[Finding]:
    whole = [row for row in rows if known(row.offered) is None]
    for lanes in sizes:
        xdp = next((row for row in whole if (row.case, row.lanes) == ("xdp-native", lanes)), None)
        for case, words in (("tcp", "chunks of 64 KiB"), ("tcp-packet", "chunks of a packet")):
            tcp = next((row for row in whole if row.case == case), None)
            if xdp and tcp:
                ratio = xdp.gbps_per_core / tcp.gbps_per_core
                text = f"copies by the same CPU time, XDP over TCP: {lanes} gradients, TCP {words}"
                yield claim(text, "2.0x", f"{ratio:.1f}x", of_ratio(ratio, 2))
