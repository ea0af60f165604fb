"""ALEPH's microbenchmarks without a network: what is asked, which cores, medians, claims, trust."""

from __future__ import annotations

import argparse
import socket
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from reproductions.aleph.micro import claims, native, plan, rig, tables
from reproductions.aleph.micro.figure import NAMES
from reproductions.aleph.micro.report import MicroReport
from reproductions.aleph.micro.rows import AnyRow, CopyRow, RoundsVerdict, RoundTripRow, SumRow
from reproductions.claims import Finding
from reproductions.reports import Trust
from reproductions.verdicts import AGREES, DIFFERS, PARTLY, SIZE, TIE
from testbed.errors import HostError, RequestError
from testbed.messages.coding import UNSET, decode, plain
from testbed.plugins.papers import figures_of
from testbed.wire.spec import LANES


def row(case: str, per_core: float, **more: Any) -> SumRow:
    is_xdp = case.startswith("xdp")
    made = SumRow(
        cores=1,
        shared=False,
        seconds=1.0,
        cpu_s=0.5,
        load=0.5,
        waited=0.0,
        gbps=per_core / 2,
        gbps_per_core=per_core,
        case=case,
        lanes=128 if is_xdp else UNSET,
        program="sum_up" if is_xdp else UNSET,
    )
    return replace(made, **more)


def copied(case: str, per_core: float, **more: Any) -> CopyRow:
    made = CopyRow(
        cores=1,
        shared=False,
        seconds=1.0,
        cpu_s=0.5,
        load=0.5,
        waited=0.0,
        gbps=per_core / 2,
        gbps_per_core=per_core,
        case=case,
        lanes=128 if case.startswith("xdp") else UNSET,
    )
    return replace(made, **more)


def timed(case: str, rate_per_s: float, median_us: float, waited: float = 0.0) -> RoundTripRow:
    return RoundTripRow(
        case=case,
        asked_per_s=rate_per_s,
        per_s=rate_per_s,
        sent=10,
        answered=10,
        loss=0.0,
        shared=False,
        waited=waited,
        mean_us=median_us,
        median_us=median_us,
        p99_us=median_us,
    )


def report(figure: str, rows: Sequence[AnyRow]) -> MicroReport[AnyRow]:
    return MicroReport(1, rows, 2, 128, 1.0, 1, tables.trust(rows), figure=figure)


def said(figure: str, rows: Sequence[SumRow]) -> dict[str, tuple[str, str | None]]:
    return words(claims.of_sums(figure, report(figure, rows)))


def words(findings: Sequence[Finding]) -> dict[str, tuple[str, str | None]]:
    return {each.text: (each.ours, each.verdict) for each in findings}


def options(name: str, *words: str) -> argparse.Namespace:
    figure, parser = figures_of("aleph")[name], argparse.ArgumentParser()
    figure.options(parser)
    asked = parser.parse_args(list(words))
    figure.check(asked)
    return asked


def test_the_figures_are_the_papers_and_need_root() -> None:
    figures = figures_of("aleph")
    assert set(NAMES) <= set(figures)
    assert all(figures[name].on_testbed for name in NAMES)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--seconds", "0"), "--seconds 0: 0.1 to 60 are accepted"),
        (("--rounds", "0"), "--rounds 0: 1 to 100 are accepted"),
        (("--gradients", "7"), "--gradients 7: even numbers from 2 to 360 are accepted"),
    ],
)
def test_what_cannot_be_is_named(words: tuple[str, ...], line: str) -> None:
    with pytest.raises(RequestError, match=line):
        options("fig5", *words)


def test_quick_is_shorter() -> None:
    asked, quick = options("fig6"), options("fig6", "--quick")
    assert (asked.rounds, quick.rounds) == (3, 1)
    assert quick.seconds < asked.seconds
    assert options("fig6", "--quick", "--seconds", "2").seconds == 2


def test_hosts_take_the_cores_that_the_head_leaves() -> None:
    assert rig.cores(1, [0, 1, 2, 5]) == rig.Cores((5,), (0, 1, 2))
    assert rig.cores(3, [0, 1, 2, 5]) == rig.Cores((1, 2, 5), (0,))
    assert rig.cores(2, [0, 1]) == rig.Cores((0, 1), (0, 1)), "all of them: shared"


@pytest.mark.parametrize("payload_bytes", [24 + 4 * 128, 24 + 4 * LANES])
def test_a_frame_is_a_packet_that_a_stack_would_take(payload_bytes: int) -> None:
    frame = rig._frame(payload_bytes)
    header = struct.unpack("!10H", frame[14:34])
    total = sum(header)
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF, "the IPv4 header's checksum"
    assert header[1] == len(frame) - 14 <= 1500
    assert frame[23] == socket.IPPROTO_UDP
    assert struct.unpack("!HHH", frame[34:40]) == (rig.PORT, rig.PORT, 8 + payload_bytes)


def test_python_and_c_agree_on_the_packet() -> None:
    text = (native.HERE / "micro.h").read_text()
    assert f"#define MICRO_PORT {rig.PORT}\n" in text
    source = (native.HERE / "micro.c").read_text()
    tallies = source.partition("enum { RECEIVED,")[2].partition("TALLIES };")[0].lower()
    assert ["received", *tallies.replace(",", " ").split()] == list(rig.TALLIES)
    answers = source.partition("enum { ANSWER_NOBODY,")[0].count("enum {")
    assert (rig.NOBODY, rig.BY_MAP, rig.BACK, answers) == (0, 1, 2, 0)


def test_no_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(HostError, match="no C compiler 'no-such-cc'; install Debian's gcc"):
        native.compiled(tmp_path, 128)


def test_a_median_is_of_a_measurement_s_rounds() -> None:
    rows = [row("tcp", rate, round=at) for at, rate in enumerate((2.0, 9.0, 3.0))]
    merged = tables.medians([*rows, row("tcp", 50.0, cores=2)])
    assert [(each.cores, each.gbps_per_core) for each in merged] == [(1, 3.0), (2, 50.0)]
    # a rate that follows from what was measured before differs by round, and is the same point
    shares = [row("xdp-native", 5.0, offered=0.5, asked_per_s=float(at)) for at in (100, 110, 120)]
    assert [each.asked_per_s for each in tables.medians(shares)] == [110.0]


def test_trust_names_who_else_had_the_cores() -> None:
    rows = [row("tcp", 1.0), row("tcp", 1.0, waited=0.2), row("tcp", 1.0, shared=True)]
    trust = tables.trust(rows)
    assert (trust.trustworthy, trust.of) == (1, 3)
    assert sorted(trust.reasons.values()) == [1, 1]


@pytest.mark.parametrize(
    ("ours", "word"), [(10.0, AGREES), (12.7, AGREES), (3.0, SIZE), (1.0, TIE), (0.5, DIFFERS), (40.0, SIZE)]
)
def test_the_word_for_a_ratio(ours: float, word: str) -> None:
    assert claims.of_ratio(ours, 10.6) == word


def test_the_word_for_an_order() -> None:
    assert claims.of_order([True, True]) == AGREES
    assert claims.of_order([True, True, False]) == PARTLY
    assert claims.of_order([True, False]) == DIFFERS


def test_tenfold_on_one_core() -> None:
    rows = [
        row("xdp-native", 17.0),
        row("xdp-generic", 12.0),
        row("tcp", 1.6),
        row("xdp-native", 90.0, program="take_only"),
    ]
    made = said("fig5", rows)
    assert made["one core, XDP native over TCP: 128 gradients, TCP chunks of 64 KiB"] == ("10.6x", AGREES)
    assert made["XDP native has the highest throughput"] == ("at 1 of 1", AGREES)
    assert made["XDP generic: no more than 50 to 60 Gb/s from 3 cores on"] == ("2 cores here", None)
    rows[2] = row("tcp", 34.0)
    made = said("fig5", rows)
    assert made["one core, XDP native over TCP: 128 gradients, TCP chunks of 64 KiB"] == ("0.5x", DIFFERS)
    assert made["XDP native has the highest throughput"][1] == DIFFERS


def test_cores_at_a_rate_are_measured_where_it_was_reached() -> None:
    whole = row("tcp", 2.0)
    reached = row("tcp", 6.0, target_gbps=5.0, gbps=5.0, cpu_s=0.8)
    assert claims.cores_for([whole, reached], 5.0, "tcp", None) == (pytest.approx(0.8), True)
    short = row("tcp", 6.0, target_gbps=5.0, gbps=2.0)
    assert claims.cores_for([whole, short], 5.0, "tcp", None) == (2.5, False)
    lossy = row("xdp-native", 6.0, target_gbps=5.0, gbps=5.0, loss=0.1)
    assert claims.cores_for([row("xdp-native", 10.0), lossy], 5.0, "xdp-native", 128) == (0.5, False)
    assert claims.cores_for([], 5.0, "tcp", None) is None


def test_loss_is_held_against_the_load_at_which_it_was() -> None:
    def points(*pairs: tuple[float, float]) -> list[SumRow]:
        return [
            row("xdp-native", 5.0, offered=0.5 + 0.1 * at, load=load, loss=loss, asked_per_s=1.0)
            for at, (load, loss) in enumerate(pairs)
        ]

    good = said("fig6", points((0.5, 0.0), (0.95, 0.001)))
    assert good["native: most loss below 90% load"] == ("0.00% (1 points)", AGREES)
    assert good["native: loss at about 95% load"] == ("0.10%", AGREES)
    bad = said("fig6", points((0.5, 0.2), (0.95, 0.3)))
    assert {verdict for _, verdict in bad.values()} == {DIFFERS}
    none = said("fig6", points((0.5, 0.0)))
    assert none["native: loss at about 95% load"] == ("no point there", None)


def test_times_are_compared_rate_by_rate() -> None:
    rows = [
        timed(case, rate, time)
        for case, times in (("xdp", (233.0, 42.0)), ("tcp", (569.0, 94.0)))
        for rate, time in zip((1.0, 1e5), times, strict=True)
    ]
    made = words(claims.of_round_trips(report("fig7", rows)))
    assert made["XDP, into the map: sooner than TCP at every rate"] == ("at 2 of 2", AGREES)
    assert made["TCP's time over XDP's, into the map, lowest rate (1 a second)"] == ("2.4x", AGREES)
    assert made["tcp: falls as packets come faster"] == ("569 to 94 us", AGREES)


def test_copies_are_compared_by_cpu_time() -> None:
    rows = [copied("xdp-native", 10.0), copied("tcp", 5.0), copied("tcp", 1.0, offered=0.5)]
    made = words(claims.of_copies(report("fig8", rows)))
    assert made["copies by the same CPU time, XDP over TCP: 128 gradients, TCP chunks of 64 KiB"] == (
        "2.0x",
        AGREES,
    )


def test_a_figure_without_rows_claims_nothing() -> None:
    assert said("table2", []) == said("fig6", []) == {}
    assert claims.of_round_trips(MicroReport(1, (), 2, 128, 1.0, 1, Trust(0, 0, {}))) == []
    assert claims.of_copies(MicroReport(1, (), 2, 128, 1.0, 1, Trust(0, 0, {}))) == []


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("figure", NAMES)
def test_progress_knows_how_many_there_are(figure: str, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements are counted, no rate being skipped."""
    made = row("tcp", 1e9, per_s=1.0, ns_per_packet=1.0)
    for name in ("xdp_sum", "tcp_sum", "xdp_copies", "tcp_copies", "one_packet"):
        monkeypatch.setattr(plan.measure, name, lambda *_, **__: made)
    monkeypatch.setattr(plan, "present", lambda: [0, 1, 2])
    tools: Any = argparse.Namespace(lanes=128)
    asked = plan.Extent(0.4, 2, quick)
    assert len(list(plan.rows(figure, tools, tools, asked))) == plan.count(figure, asked)


def test_what_others_shaped_has_no_verdict() -> None:
    lossy = [row("xdp-native", 5.0, offered=0.5, load=0.1, loss=0.3, waited=0.4, asked_per_s=1.0)]
    assert said("fig6", lossy) == {"native: loss by load": (claims.BUSY, None)}
    times = [timed("xdp", 10.0, 900.0, waited=0.4), timed("tcp", 10.0, 100.0, waited=0.4)]
    findings = words(claims.of_round_trips(report("fig7", times)))
    assert {verdict for _, verdict in findings.values()} == {None}


def test_rows_are_read_as_they_were_written() -> None:
    """Their fields are in the order of a figure's columns, and those that do not apply are not there."""
    summed = row("xdp-native", 17.0, asked_per_s=None, per_s=5.0, ns_per_packet=9.0, counts={"sent": 3})
    whole = replace(summed, target_gbps=None, round=0, verdict=RoundsVerdict(True))
    written = plain(report("table2", [whole]))
    assert " ".join(written["rows"][0]) == (
        "cores shared seconds cpu_s load waited gbps gbps_per_core case lanes program asked_per_s per_s "
        "ns_per_packet loss counts target_gbps round verdict"
    )
    assert decode(MicroReport[SumRow], written, "table 2").rows == [whole]
