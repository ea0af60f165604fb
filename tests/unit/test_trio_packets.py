"""`testbed reproduce trio fig14` to `fig16`: what is said of the paper, shown, drawn and asked. Made-up runs,
no testbed.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from reproductions.experiment import Experiment
from reproductions.reports import LoadVerdict
from reproductions.trio import FIGURES
from reproductions.trio.packets import claims, worker
from reproductions.trio.packets.figure import PLANS
from reproductions.trio.packets.runs import AgedReport, AgedRow, StreamReport, StreamRow, network
from reproductions.verdicts import AGREES, DIFFERS
from testbed.errors import RequestError
from testbed.messages.coding import plain
from testbed.topology.load import load
from testbed.wire.rings import RESULT
from tests.processes import alive

ROOT = Path(__file__).resolve().parents[2]

TRUSTED = LoadVerdict(True, ())
AGED = [
    AgedRow(1.0, busy=False, over=[1.1, 1.3, 1.4], load=0.03, verdict=TRUSTED),
    AgedRow(20.0, busy=False, over=[1.05, 1.06, 1.1], load=0.02, verdict=TRUSTED),
    AgedRow(20.0, busy=True, over=[1.1, 2.4], load=0.02, verdict=TRUSTED),
]


def streamed(gradients: int, window: int, packet_us: float) -> StreamRow:
    seconds = [packet_us / 1e6 * 1000 * factor for factor in (0.9, 1.0, 1.5)]
    return StreamRow(gradients, window, 1000, seconds, load=0.05, verdict=TRUSTED)


SIZES = [streamed(64, 1, 30.0), streamed(128, 1, 35.0), streamed(256, 1, 60.0)]
WINDOWS = [
    streamed(512, 1, 40.0),
    streamed(512, 64, 20.0),
    streamed(512, 4096, 19.5),
    streamed(1024, 1, 60.0),
    streamed(1024, 64, 90.0),
    streamed(1024, 4096, 30.0),
]
STREAMS = {"fig15": SIZES, "fig16": WINDOWS}


def figure(name: str) -> Experiment:
    return next(each for each in FIGURES if each.name == name)


def report_of(name: str) -> dict[str, Any]:
    """Return a report in JSON's form, as `testbed reproduce` has it."""
    about = PLANS[name].about
    made = AgedReport(1, about, 3, AGED) if name == "fig14" else StreamReport(1, about, 3, STREAMS[name])
    report = {"figure": name, **plain(made)}
    return {**report, "claims": figure(name).claims(report)}


def options(name: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    figure(name).options(parser)
    parsed = parser.parse_args(words)
    figure(name).check(parsed)
    return parsed


def test_latency_is_by_littles_law_and_rates_are_a_workers() -> None:
    row = streamed(512, 64, 20.0)
    assert row.latency_us == pytest.approx(1280.0)
    assert row.rate == pytest.approx(25.6)


def test_ages_are_held_against_two_timeouts_and_the_median_asked_for() -> None:
    load = "others use"
    said = {claim.text: (claim.ours, claim.verdict) for claim in claims.of_aged(AGED)}
    assert said == {
        f"1 ms, {load} 3% of the cores: within two timeouts": ("1.40 at most, median 1.30", AGREES),
        f"1 ms, {load} 3% of the cores: median within 1.2 timeouts": ("1.30", DIFFERS),
        f"20 ms, {load} 2% of the cores: within two timeouts": ("1.10 at most, median 1.06", AGREES),
        f"20 ms, {load} 2% of the cores: median within 1.2 timeouts": ("1.06", AGREES),
    }, "beside busy cores nothing is comparable with the paper's"


def test_latency_grows_by_less_than_the_size_and_the_rate_flattens() -> None:
    grows, flattens = claims.of_streams("fig15", SIZES)
    assert (grows.ours, grows.verdict) == ("2.0 for 4", AGREES)
    assert (flattens.ours, flattens.verdict) == ("1.71, 1.17", AGREES)
    steeper = [streamed(64, 1, 30.0), streamed(128, 1, 40.0), streamed(256, 1, 150.0)]
    assert [claim.verdict for claim in claims.of_streams("fig15", steeper)] == [DIFFERS, AGREES]
    grown = [steeper[0], streamed(128, 1, 58.0), replace(steeper[1], gradients=256)]
    assert claims.of_streams("fig15", grown)[1].verdict == DIFFERS


def test_what_windows_gain_and_which_is_the_best() -> None:
    said = {claim.text: (claim.ours, claim.verdict) for claim in claims.of_streams("fig16", WINDOWS)}
    assert said["512 gradients: throughput grows with the window"] == ("2.1 times from 1 to 4096", AGREES)
    assert said["512 gradients: so does latency"] == ("40 to 79872 us", AGREES)
    best = "gradients: the smallest window with 95% of the highest throughput"
    assert said[f"512 {best}"] == ("64", DIFFERS)
    assert said[f"1024 {best}"] == ("4096", AGREES)


@pytest.mark.parametrize("name", PLANS)
def test_reports_are_shown_and_drawn(name: str, tmp_path: Path) -> None:
    report = report_of(name)
    console = Console(file=io.StringIO(), width=200)
    figure(name).show(report, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(claim["text"] in shown for claim in report["claims"])
    figure(name).draw(report, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_what_is_usual(tmp_path: Path) -> None:
    assert options("fig14").runs == 10
    assert (options("fig15").runs, options("fig15").packets) == (20, 10_000)
    assert (options("fig16", "--quick").runs, options("fig16", "--quick").packets) == (2, 500)
    file = tmp_path / "fig14.yaml"
    file.write_text(network())
    topology = load(file)
    assert (topology.mtu, topology.inc.blocks) == (4200, 65536)


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("fig14", ["--runs", "101"], "--runs 101: 1 to 100 are accepted"),
        ("fig15", ["--runs", "0"], "--runs 0: 1 to 1000 are accepted"),
        ("fig15", ["--packets", "0"], "--packets 0: 1 to 100000 are accepted"),
        ("fig16", ["--packets", "4095"], "--packets 4095: 4096 to 100000 are accepted"),
    ],
)
def test_one_line_for_what_cannot_be(name: str, words: list[str], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        options(name, *words)


def test_busy_cores_end_with_a_command_that_is_killed() -> None:
    script = (
        "import time\nfrom reproductions.trio.packets.runs import _busy_cores\n"
        "with _busy_cores():\n    print(flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
    assert len(children) == os.cpu_count()
    deadline = time.monotonic() + 30
    while any(alive(int(pid)) for pid in children):
        assert time.monotonic() < deadline, "they outlive it"
        time.sleep(0.05)


def test_no_result_is_seen_before_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that come where the worker waits for a core, right behind each reading of the clock."""
    ring, came_s = np.zeros(3, RESULT.dtype(4)), [0.0] * 3
    readings = iter(range(1, 20))

    def a_core_is_waited_for() -> float:
        now_s = float(next(readings))
        behind = int(now_s) - 2  # the first reading is the deadline's
        if 0 <= behind < len(ring):
            ring["sequence"][behind], came_s[behind] = behind + 1, now_s + 0.5
        return now_s

    monkeypatch.setattr(worker.time, "monotonic", a_core_is_waited_for)
    seen_s = worker._results(ring, 0, len(ring))
    assert all(seen >= came > 0 for seen, came in zip(seen_s, came_s, strict=True)), (seen_s, came_s)
