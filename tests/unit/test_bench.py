"""The benchmarks' pure parts: bounds, samples of a profile, tables in a document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Never

import pytest

from testbed.errors import RequestError
from testbed.topology.load import parse
from tests.bench import before, engines, verdict
from tests.bench.goodput import bound_s
from tests.bench.rack import Setup, compiled, described
from tests.bench.spent import ENDPOINT, IDLE, OTHER, part, samples
from tests.bench.systems import WAYS, compared
from tests.bench.tables import engines as engines_table
from tests.bench.tables import queues, replaced, shaped, table

SCRIPT = """python  117.000000251:
\tffffffff81000001 memcpy ([kernel.kallsyms])
\tffffffff81000002 skb_pp_cow_data ([kernel.kallsyms])
\tffffffff81000003 veth_poll ([kernel.kallsyms])
\tffffffff81000004 __x64_sys_sendmsg ([kernel.kallsyms])

python  117.000500000:
\t    7f0000000001 encode (/srv/_endpoint.so)
\t    7f0000000002 main (/usr/bin/python3.11)

swapper  117.001000000:
\tffffffff81000005 pv_native_safe_halt ([kernel.kallsyms])
\tffffffff81000006 do_idle ([kernel.kallsyms])

python  117.002000000:
\tffffffffc0000001 bpf_csum_diff ([kernel.kallsyms])
\tffffffffc0000002 bpf_prog_0123456789abcdef_tor_port (bpf_prog_0123456789abcdef_tor_port)
\tffffffff81000003 veth_poll ([kernel.kallsyms])
"""


def test_the_bound_of_a_link_with_a_rate() -> None:
    assert bound_s(Setup((8,), 100.0), 12_500_000, 1.0) == pytest.approx(1.0)
    assert Setup((8,), 100.0).framing == pytest.approx(1514 / 1440)
    assert bound_s(Setup((8,)), 12_500_000, 1.0) == 0


def test_across_units_the_ps_link_carries_each_units_partial_sum() -> None:
    assert bound_s(Setup((2, 2), 100.0), 12_500_000, 1.0) == pytest.approx(2.0)
    assert bound_s(Setup((1, 1, 1), 100.0), 12_500_000, 1.0) == pytest.approx(3.0)


def test_a_table_of_links_with_a_rate_says_how_long_their_queues_were() -> None:
    said = described(Setup((2,), 100.0))["buffer_packets"]
    assert shaped({"goodput": [], "buffer_packets": said}).endswith(
        f"`buffer_packets: {said}`; the default is 256."
    )
    assert queues(256).endswith("the default.")


def test_readme_says_of_bmv2_what_the_table_has() -> None:
    root = Path(__file__).resolve().parents[2]
    rows = re.findall(r"^\| XDP \| .*$", (root / "docs/studies/performance.md").read_text(), re.MULTILINE)
    least, most = sorted(float(row.split("|")[6]) for row in rows)
    words = " ".join((root / "README.md").read_text().split())
    assert f"{least:.0f} to {most:.0f} times slower than XDP" in words


def test_a_sample_counts_for_the_innermost_function_that_is_known() -> None:
    profile = list(samples(SCRIPT))
    assert [at for at, _, _ in profile] == pytest.approx([117.000000251, 117.0005, 117.001, 117.002])
    parts = [part(functions, endpoint) for _, functions, endpoint in profile]
    assert parts[1:3] == [ENDPOINT, IDLE]
    assert "copy" in parts[0]
    assert "program" in parts[3]
    assert part(["main"], False) == OTHER


def test_a_table_goes_between_its_marks_only() -> None:
    document = (
        "before\n<!-- bench limit -->\nold\n<!-- end -->\nafter\n<!-- bench spent -->\nkept\n<!-- end -->\n"
    )
    assert replaced(document, "limit", table(["a", "b"], [["1", "2"]])) == (
        "before\n<!-- bench limit -->\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n<!-- end -->\nafter\n"
        "<!-- bench spent -->\nkept\n<!-- end -->\n"
    )
    with pytest.raises(SystemExit, match="bench tried: 0 places"):
        replaced(document, "tried", "")


def test_a_sentence_of_a_benchmark_is_broken_and_a_table_is_not() -> None:
    row, sentence = f"| {'x' * 120} |", " ".join(["measured"] * 20)
    lines = replaced("<!-- bench limit -->\n<!-- end -->\n", "limit", f"{row}\n\n{sentence}").splitlines()
    assert lines[1:3] == [row, ""]
    assert " ".join(lines[3:-1]) == sentence
    assert max(map(len, lines[3:-1])) <= 100


def test_a_constant_that_the_endpoint_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="0 definitions of NO_SUCH"):
        compiled(tmp_path, {"NO_SUCH": 1})


def test_a_setup_says_what_sums_and_leaves_a_host_for_the_parameter_server() -> None:
    topology = parse(described(Setup((2,), mtu=3476, engine="bmv2", layout="registers", spare=1)), "bench")
    (unit,) = topology.units
    assert (unit.engine, unit.hosts, topology.bmv2.layout, topology.mtu) == ("bmv2", 3, "registers", 3476)
    assert [unit.hosts for unit in parse(described(Setup((2, 2))), "bench").units] == [2, 2, 1]


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ([engines._ALWAYS + engines._LOGGED, b"of a library"], engines.WITH_MACROS),
        ([engines._ALWAYS, b"of a library"], engines.WITHOUT_MACROS),
        ([b"a launcher", engines._LOGGED + engines._ALWAYS], engines.WITH_MACROS),
        ([b"a launcher", engines._LOGGED], engines.AS_FOUND),
        ([], engines.AS_FOUND),
    ],
)
def test_logging_macros_are_told_by_what_a_build_has_in_it(files: list[bytes], answer: str) -> None:
    assert engines.logging_macros(files) == answer


def test_a_round_of_a_way_has_one_all_reduce_at_least() -> None:
    assert [engines.turns(median, 2.0) for median in (5.0, 0.5, 0.0001)] == [1, 4, engines.MOST_TURNS]


def a_run(mbps: float, switches_cpu_s: float = 0.0) -> dict[str, Any]:
    """Return the figures that tests/bench/rack.py makes of ten all-reduces of 1 MB."""
    return {
        "goodput_mbps": mbps,
        "seconds": [8 / mbps] * 10,
        "pairs": 1000,
        "machine_cpu_s": 0.32,
        "switches_cpu_s": switches_cpu_s,
        "counters": [{"retransmitted": 2}, {}],
    }


def rows_of(rounds: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Return the rows of MTU 1500; a way without rounds is skipped."""
    rows: list[dict[str, Any]] = [
        engines.row(way, 1_000_000, [a_run(mbps, 0.05) for mbps in rounds[way.name]])
        if way.name in rounds
        else {"name": way.name, "label": way.label, "mtu": 1500, "skipped": "no such program"}
        for way in engines.ways(1500)
    ]
    engines.ratios(rows)
    return rows


ROUNDS = {
    "bmv2-wide": (90.0, 120.0, 100.0),
    "bmv2-registers": (20.0, 20.0, 10.0),
    "xdp": (900.0, 1000.0, 1000.0),
}


def test_each_way_is_compared_with_wide_lanes_by_the_medians() -> None:
    wide, registers, xdp, ps, ring = rows_of(ROUNDS)
    assert (wide["goodput_mbps"], wide["spread"], wide["retransmitted"]) == (100, pytest.approx(0.3), 6)
    assert (wide["machine_s_per_gbit"], wide["switch_us_per_push"]) == (pytest.approx(2.0), pytest.approx(50))
    assert (wide["of_wide"], registers["of_wide"], xdp["of_wide"], ps["of_wide"]) == (1.0, 0.2, 10.0, None)
    assert xdp["switch_us_per_push"] is None
    assert "skipped: no such program" in engines.line(ring)
    assert engines.layouts([wide, registers, ring]) == (5.0, 4.5, 10.0)
    assert engines.layouts([wide, ring]) is None


def test_without_wide_lanes_there_is_nothing_to_compare_with() -> None:
    rows = rows_of({"xdp": (1000.0,)})
    assert [row["of_wide"] for row in rows] == [None] * 5
    assert engines.line(rows[2]).split()[6] == "-"


def test_the_table_of_engines_names_what_was_left_out() -> None:
    bmv2 = {"version": "1.15.5", "logging": engines.WITHOUT_MACROS}
    text = engines_table({"rows": rows_of(ROUNDS), "bmv2": bmv2, "rounds": 3})
    assert "| BMv2, wide lanes | 1500 | 100 | 90 to 120 | 30% | 1.00 | 2.00 | 50 |" in text
    assert "| ring (gloo) | 1500 | - | - | - | - | - | - |" in text
    assert "ring (gloo) at MTU 1500 was not measured: no such program." in text
    assert (
        "At MTU 1500 BMv2's goodput with wide lanes (64 in a register) is 5.0 times that with one register "
        "per lane (least to most of the bench's rounds: 4.5 to 10.0)."
    ) in text
    assert "BMv2 is simple_switch 1.15.5, without logging macros. The bench ran 3 rounds." in text


def test_an_mtu_without_bmv2_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = "simple_switch (BMv2) is not installed"

    def nothing(*_: object) -> Never:
        raise AssertionError("measured")

    monkeypatch.setattr(engines, "hindrance", lambda way: absent if way.setup.engine == "bmv2" else None)
    monkeypatch.setattr(engines, "measure", nothing)
    rows = engines.at_mtu(3476, 1_000_000, 3, 1.0)
    assert [(row["name"], row["skipped"]) for row in rows] == [
        ("bmv2-wide", absent),
        ("bmv2-registers", absent),
    ]


def test_a_program_that_is_not_there_or_stale_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, registers, xdp, *_ = engines.ways(3476)
    monkeypatch.setattr(engines, "binary", lambda: "simple_switch")
    monkeypatch.setattr(engines, "recorded_hash", lambda _: "old")
    monkeypatch.setattr(engines, "compiled", lambda layout, *_: Path(f"{layout}-854.json"))
    assert "wide-854.json is stale" in (engines.hindrance(wide) or "")
    assert engines.hindrance(xdp) is None

    def absent(layout: str, *_: object) -> Never:
        raise RequestError(f"no program of the layout {layout}")

    monkeypatch.setattr(engines, "compiled", absent)
    assert engines.hindrance(registers) == "no program of the layout registers"


def verdict_row(
    kind: str, rate: int, measured_ms: float, ratio: float, spin_ms: float = 0.0
) -> dict[str, Any]:
    row = {"kind": kind, "rate_mbps": rate, "load": "none", "measured_ms": measured_ms, "ratio": ratio}
    return {**row, "spin_ms": spin_ms, "trustworthy": ratio <= 1.1}


def test_the_truth_about_a_verdict_is_a_line_through_slow_links() -> None:
    series = verdict.CHOSEN_BY
    kind, computing = series.kinds[1].name, series.computing
    rows = [verdict_row(kind, rate, 10 + 2000 / rate, 1.0) for rate in series.slow]
    rows += [
        verdict_row(kind, 100, 1.04 * 30, 1.05),  # links set it, and the verdict says so
        verdict_row(kind, 200, 1.30 * 20, 1.02),  # the machine did
        verdict_row(kind, 400, 1.05 * 15, 1.20),
        verdict_row(
            computing.name, 100, 1.50 * 40, 1.50, 10.0
        ),  # 30 ms as those that do not compute, and 10 of computing
        verdict_row("of a kind without slow links", 100, 1.0, 1.0),
    ]
    judged = verdict.judged(series, rows)
    assert [round(row["stretch"], 2) for row in judged] == [1.04, 1.30, 1.05, 1.50]
    assert [row["links_set_it"] for row in judged] == [True, False, True, False]
    assert verdict.wrong(judged, 1.10) == (1, 2, 1, 2)
    assert verdict.wrong(judged, 1.01) == (0, 2, 2, 2)
    shown = verdict.tables(series, {"rows": rows, "limit": 1.1})
    assert "| 10 % | 1 of 2 | 1 of 2 |" in shown
    assert shown.count("(wrong)") == 2


@pytest.mark.parametrize("series", [verdict.CHOSEN_BY, verdict.HELD_OUT], ids=lambda series: series.name)
def test_every_case_of_the_verdicts_bench_has_a_truth(series: verdict.Series) -> None:
    names = {kind.name for rate in series.rates for kind, _ in series.cases(rate)}
    with_lines = {kind.name for kind, _ in series.cases(series.slow[0])}
    assert {series.line_of(name) for name in names} == with_lines
    assert sum(len(series.cases(rate)) for rate in series.rates if rate not in series.slow) >= 20


def test_what_is_held_out_has_nothing_of_what_the_limit_was_chosen_by() -> None:
    chosen, held = verdict.CHOSEN_BY, verdict.HELD_OUT
    assert set(chosen.rates).isdisjoint(held.rates)
    assert {kind.name for kind in chosen.kinds}.isdisjoint(kind.name for kind in held.kinds)
    assert (chosen.gradients, chosen.pause_s) != (held.gradients, held.pause_s)
    loads = [
        {load.name for cases in series.loaded.values() for _, load in cases} for series in (chosen, held)
    ]
    assert loads[0].isdisjoint(loads[1])


def test_a_comparison_takes_turns_there_here_here_there() -> None:
    assert before.order(2) == [False, True, True, False]
    assert before.order(3) == [False, True, True, False, False, True]


def test_ratios_are_of_neighbours_and_their_median_counts() -> None:
    compared = before.Compared("goodput", "Mb/s", 0, [100.0, 200.0, 50.0], [110.0, 190.0, 60.0])
    assert compared.ratios == pytest.approx([1.1, 0.95, 1.2])
    said = before.summary({"before": "0123456789abcdef", "compared": [asdict(compared)]})
    assert "| goodput, Mb/s | 100 (50 to 200) | 110 (60 to 190) | 1.100 (0.950 to 1.200) | 3 |" in said
    assert said.endswith('"Before" is commit 0123456789ab.')


def test_systems_are_compared_at_the_same_gradients_a_packet_round_by_round() -> None:
    times = [[50.0, 100.0], [40.0, 90.0], [60.0, 100.0], [20.0, 30.0], [30.0, 60.0]]
    rows = compared(times)
    assert [(row["way"], row["gradients_per_packet"]) for row in rows] == [
        (way.title, way.lanes) for way in WAYS
    ]
    assert [row["over"] for row in rows] == pytest.approx([1.0, 0.85, 1.1, 1.0, 1.75])
    assert (rows[2]["over_least"], rows[2]["over_most"]) == pytest.approx((1.0, 1.2))
    assert [row["pool"] for row in rows] == [1024, 512, None, 1024, None]
