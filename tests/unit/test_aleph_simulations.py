"""ALEPH's simulations (figures 13 to 16): what a run measures, by hand where it can be, and the figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reproductions.aleph import FIGURES
from reproductions.aleph.simulated import plots
from reproductions.aleph.simulated.claims import PRINTED_NUMBERS
from reproductions.aleph.simulated.figure import PLANS
from reproductions.aleph.simulated.report import IterationReport
from testbed import reproduce
from testbed.errors import RequestError
from testbed.messages.coding import decode
from testbed.report.plots import drawing
from testbed.systems.aleph.model import Clustering
from testbed.systems.aleph.near import nearer
from testbed.systems.aleph.simulator import (
    FAT_TREE,
    LEAF_SPINE,
    MEGABYTES,
    OURS,
    PS,
    RACK,
    RANDOM,
    RING,
    TITLES,
    TOPOLOGIES,
    Iteration,
    Scene,
    World,
)


def test_one_rack_of_equal_workers_is_counted_by_hand() -> None:
    """Ten workers of 5 Gb/s at one leaf, ten servers of 10 at another."""
    world = World(LEAF_SPINE, Scene(10, 0.0), 1)
    alone, ring = world.measured(PS, 0.0), world.measured(RING, 0.0)
    assert alone.workers_gbps == alone.servers_gbps == pytest.approx(50.0)
    assert alone.time_s == pytest.approx(MEGABYTES * 8e-3 / 5)
    assert alone.overhead_gb == pytest.approx(10 * 4 * MEGABYTES / 1e3)  # up, over, and down: 4 links
    assert alone.both_ways_gb == 2 * alone.overhead_gb
    assert alone.hops == 3  # a leaf, a spine, a leaf
    assert ring.hops == 9  # sent on 9 times, at one leaf
    assert ring.time_s == pytest.approx(1.8 * MEGABYTES * 8e-3 / 5)
    assert ring.overhead_gb == pytest.approx(1.8 * 10 * 2 * MEGABYTES / 1e3)
    assert ring.workers_gbps == pytest.approx(50.0)
    assert ring.servers_gbps == 0


def test_ways_of_the_fat_tree_are_2_4_or_6_links() -> None:
    world = World(FAT_TREE, Scene(), 1)
    assert [world.links("p1e1", other) for other in ("p1e1", "p1e2", "p2e1")] == [2, 4, 6]
    assert len(set(world.workers)) == 10  # rack by rack
    assert set(world.servers) == {"p8e4"}
    assert len(set(World(FAT_TREE, Scene(place=RANDOM), 1).workers)) > 20


def test_whom_a_worker_can_head_is_asked_for() -> None:
    racks = World(FAT_TREE, Scene(30, 0.3, RACK), 1)
    assert racks.instance.neighbours is not None
    assert racks.instance.neighbours[0] == frozenset(range(1, 10))
    assert (
        racks.measured(OURS, 0.3).contributors
        >= World(FAT_TREE, Scene(30, 0.3), 1).measured(OURS, 0.3).contributors
    )


def test_members_go_to_near_heads_and_loads_stay() -> None:
    places = [0, 9, 1, 8, 5]
    far = Clustering((0, 1, 1, 0, 4))
    near = nearer(far, lambda member, head: abs(places[member] - places[head]))
    assert near.head == (0, 1, 0, 1, 4)
    assert near.loads() == far.loads()
    assert nearer(Clustering((0, 1)), lambda *_: 1.0).head == (0, 1)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_ours_takes_no_longer_than_any_other_clustering(topology: str) -> None:
    for seed in range(1, 4):
        for deviation in (0.0, 0.1, 0.3):
            world = World(topology, Scene(60, deviation), seed)
            runs = {scheme: world.measured(scheme, deviation) for scheme in TITLES}
            others = [run.time_s for scheme, run in runs.items() if scheme not in (OURS, RING, "balanced")]
            assert runs[OURS].time_s <= min(others) * (1 + 1e-9)


def options(name: str, *argv: str) -> argparse.Namespace:
    (figure,) = [figure for figure in FIGURES if figure.name == name]
    parser = argparse.ArgumentParser()
    figure.options(parser)
    chosen = parser.parse_args(argv)
    figure.check(chosen)
    return chosen


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES if not figure.on_testbed])
def test_a_figure_is_run_held_against_the_paper_and_drawn(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce.main(["aleph", name, "--quick", "--out", str(tmp_path)]) == 0
    assert "statements, and what our runs say" in capsys.readouterr().out
    report: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
    assert len(report["runs"]) == 2 * 2 * 2 * len(TITLES)
    assert [Iteration(**run).scheme for run in report["runs"][: len(TITLES)]] == list(TITLES)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    verdicts = {claim["text"]: claim["verdict"] for claim in report["claims"]}
    assert verdicts
    if name == "fig13":  # 188 of 200 Gb/s at workers and 12 at servers; as printed 100, as without heads
        said = {claim["text"].partition(" at ")[0]: claim for claim in report["claims"]}
        assert said["ALEPH: bandwidth usage of workers"]["verdict"] == "in part"
        assert "as printed" in said["ALEPH: bandwidth usage of workers"]["ours"]
        assert said["BytePS: bandwidth usage of workers"]["verdict"] == "agrees"
        assert said["by that ALEPH communicates for less time"]["verdict"] != "agrees"
    (figure,) = [figure for figure in FIGURES if figure.name == name]
    figure.show(report, Console(file=None, quiet=True))
    with drawing():
        drawn = plots.picture(decode(IterationReport, report, "report"))
        crosses = [line for axes in drawn.axes for line in axes.get_lines() if line.get_markersize() == 10]
    assert [float(line.get_ydata()[0]) for line in crosses] == [
        number.paper for number in PRINTED_NUMBERS[name]
    ]


def test_quick_is_a_smaller_sweep_of_the_same_statements() -> None:
    assert (options("fig15").seeds, options("fig15").values) == (20, "10,50,100,150,200,250")
    assert (options("fig15", "--quick").seeds, options("fig15", "--quick").values) == (2, "10,50")
    chosen = options("fig13", "--quick", "--values", "0.1", "--seeds", "3")
    assert (chosen.seeds, chosen.values) == (3, "0.1")
    for plan in PLANS.values():
        assert set(plan.quick) < set(plan.values)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--seeds", "0"), "--seeds 0: at least 1 is accepted"),
        (("--values", "a"), "--values a: numbers with commas are accepted"),
        (("--values", "5"), "deviation 5: 0 to 1 is accepted"),
        (("--workers", "300"), "workers 300: 1 to 290 are accepted"),
        (("--reach", "all"), "reach 'all': accepted are anybody, rack"),
        (("--place", "all"), "place 'all': accepted are packed, random"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        options("fig13", *argv)
