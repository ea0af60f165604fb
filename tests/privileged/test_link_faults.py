"""The fault stage of a link, frame by frame against its model, and its rates against the binomial
distribution.
"""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import binom

from tests.privileged.fault_wire import findings

pytestmark = [pytest.mark.needs("namespaces", "xdp"), pytest.mark.usefixtures("nothing_left")]

CONFIDENCE = 0.999  # that a stage with the rate asked for shows a count within the interval


def judge(counts: dict[str, Any]) -> None:
    assert counts["wrong"] == 0, (
        "each frame arrived as the model says, in its place, with its flipped bit and no other"
    )
    assert counts["extra"] == 0
    assert {name: counts["counters"][name] for name in counts["model"]} == counts["model"]
    assert [counts["counters"][name] for name in ("crowded", "failed", "merged")] == [0, 0, 0]


def within(count: int, of: int, rate: float) -> bool:
    low, high = binom.interval(CONFIDENCE, of, rate)
    return bool(low <= count <= high)


@pytest.mark.parametrize(
    ("fault", "counter", "rate", "frames"),
    [
        ({"loss": 0.0001}, "lost", 0.0001, 300_000),
        ({"loss": 0.001}, "lost", 0.001, 100_000),
        ({"loss": 0.01}, "lost", 0.01, 50_000),
        ({"loss": 0.1}, "lost", 0.1, 20_000),
        ({"duplicate": 0.01}, "duplicated", 0.01, 50_000),
        ({"reorder": 0.01, "distance": 50}, "held", 0.01, 50_000),
        ({"corrupt": 0.001}, "corrupted", 0.001, 100_000),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_rate_is_what_was_asked(fault: dict[str, float], counter: str, rate: float, frames: int) -> None:
    counts = findings("frames", fault=fault, count=frames)
    judge(counts)
    assert counts["counters"]["seen"] == frames
    assert within(counts["counters"][counter], frames, rate)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_all_faults_together_do_what_the_model_does(direction: str) -> None:
    fault = {"loss": 0.1, "duplicate": 0.05, "reorder": 0.05, "corrupt": 0.1, "distance": 7, "seed": 3}
    judge(findings("frames", fault=fault, count=10_007, direction=direction))


def test_every_frame_held_is_a_delay_of_that_many_frames() -> None:
    counts = findings("frames", fault={"reorder": 1.0, "distance": 50}, count=1_009)
    judge(counts)
    assert counts["counters"]["held"] - counts["counters"]["released"] == 50


def test_other_seeds_are_other_frames() -> None:
    counts = [
        findings("frames", fault={"loss": 0.5, "seed": seed}, count=2_003)["counters"]["lost"]
        for seed in (1, 2)
    ]
    assert counts[0] != counts[1]


@pytest.mark.parametrize(
    ("fault", "counter", "rate"),
    [
        ({"loss": 0.01}, "lost", 0.01),
        ({"corrupt": 0.01}, "corrupted", 0.01),
        ({"duplicate": 0.01, "reorder": 0.01, "distance": 50}, "duplicated", 0.01),
    ],
    ids=["loss", "corruption", "duplication and reordering"],
)
def test_tcp_meets_the_faults_frame_by_frame_and_delivers(
    fault: dict[str, float], counter: str, rate: float
) -> None:
    size = 20_000_000
    transfer = findings("tcp", fault=fault, size=size)
    assert transfer["same"], "the receiver checked every checksum itself"
    up = transfer["up"]
    assert up["merged"] == 0
    assert up["seen"] >= size // 1448, "no frame stands for several"
    assert within(up[counter], up["seen"], rate)
    assert transfer["down"]["seen"] > 0


def test_a_stage_is_there_only_while_a_fault_is_set() -> None:
    stages = findings("life")
    assert [stages[when] for when in ("before", "up", "both", "after")] == [[0, 0], [1, 0], [1, 1], [0, 0]]
    assert stages["loaded"] == [True, False], "the program goes with the last stage"
    assert stages["listed"] == [["w", "up", 0.5], ["w", "down", 0.5]]
    assert stages["nothing"] == []
