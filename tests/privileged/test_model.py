"""The reference model and the XDP programs, in step through random schedules: every verdict, every frame and
every slot the same.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.at_once import at_once
from tests.privileged.packets import findings
from tests.vectors.in_step import TRIED

pytestmark = [pytest.mark.needs("namespaces", "xdp"), pytest.mark.timeout(660)]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, dict[str, int]]:
    """The counts of verdicts by method of Trial. A difference fails in there, with the packet."""
    return at_once({tried: partial(findings, "model_run", tried, timeout_s=600) for tried in TRIED})


def test_whole_jobs_in_all_weathers(verdicts: dict[str, dict[str, int]]) -> None:
    """Pushes, losses, repeats, overtaking, retransmissions and ticks, over trees of all shapes."""
    met = {"aggregated", "completed", "duplicate", "resent", "result", "forwarded", "ticked", "tick_late"}
    assert set(verdicts["worlds"]) >= met


def test_whole_jobs_by_block_records(verdicts: dict[str, dict[str, int]]) -> None:
    """The same over switches with block records, while workers sleep and places are ticked."""
    met = {
        "aggregated",
        "completed",
        "duplicate",
        "resent",
        "result",
        "ticked",
        "late",
        "stale",
        "tick_early",
    }
    assert set(verdicts["blocks"]) >= met


def test_schedules_that_keep_no_window(verdicts: dict[str, dict[str, int]]) -> None:
    met = {
        "aggregated",
        "completed",
        "duplicate",
        "resent",
        "stale",
        "mismatch",
        "bad_slot",
        "bad_generation",
        "bad_job",
        *("ticked", "tick_late", "late", "result"),
    }
    assert set(verdicts["schedules"]) >= met


def test_malformed_and_adversarial_packets(verdicts: dict[str, dict[str, int]]) -> None:
    met = {"malformed", "corrupt", "bad_sender", "bad_worker", "forwarded", "to_ovs", "passed", "notice"}
    assert set(verdicts["mutated"]) >= met
    assert sum(verdicts["mutated"].values()) == 16_000
