"""Some 120,000 packets, half of them damaged or forged, through model and XDP programs in step;
tests/bench/fuzz.py sends millions.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.privileged.packets import findings

pytestmark = [pytest.mark.needs("namespaces", "xdp")]

PACKETS, SEED = 120_000, 11
MET = {
    "switch": {
        *(
            "malformed",
            "corrupt",
            "bad_sender",
            "bad_job",
            "bad_generation",
            "bad_slot",
            "bad_worker",
            "stale",
            "mismatch",
        ),
        *("duplicate", "resent", "aggregated", "completed", "result", "notice", "forwarded", "to_ovs"),
        *("late", "ticked", "tick_late", "asked"),
    },
    "host": {
        *(
            "malformed",
            "corrupt",
            "bad_job",
            "bad_generation",
            "bad_slot",
            "bad_worker",
            "stale",
            "mismatch",
            "duplicate",
        ),
        *("resent", "aggregated", "completed", "pulled", "pull_duplicate", "notice", "passed"),
        *("late", "ticked", "tick_late", "result", "bad_sender", "asked", "answered", "handed"),
    },
    "blocks": {
        *("malformed", "corrupt", "bad_sender", "bad_job", "bad_generation", "bad_slot", "bad_worker"),
        *("stale", "duplicate", "resent", "aggregated", "completed", "result", "forwarded", "to_ovs"),
        *("late", "ticked", "tick_late", "tick_early", "capped"),
    },
    "owned": {
        *("malformed", "corrupt", "bad_sender", "bad_job", "bad_generation", "bad_slot", "bad_worker"),
        *("stale", "duplicate", "resent", "aggregated", "completed", "result", "forwarded", "to_ovs"),
        *("beat", "mismatch"),
    },
    "optics": {"dark", "unlit", "lit", "probe"},
}


@pytest.fixture(scope="module")
def shot() -> dict[str, dict[str, Any]]:
    """The findings of the fuzzer by place."""
    return {each["place"]: each for each in findings("fuzz_run", str(PACKETS), str(SEED), timeout_s=600)}


@pytest.mark.parametrize("place", MET)
def test_model_and_programs_agree_after_every_packet(place: str, shot: dict[str, dict[str, Any]]) -> None:
    assert (shot[place]["differences"], shot[place]["mismatches"]) == ([], 0)
    assert sum(each["packets"] for each in shot.values()) >= PACKETS


@pytest.mark.parametrize("place", MET)
def test_the_packets_met_every_verdict(place: str, shot: dict[str, dict[str, Any]]) -> None:
    assert set(shot[place]["verdicts"]) == MET[place]


def test_every_verdict_is_counted_once(shot: dict[str, dict[str, Any]]) -> None:
    assert [each["uncounted"] for each in shot.values()] == [{}] * len(MET)


def test_no_packet_touched_a_slot_that_no_job_has(shot: dict[str, dict[str, Any]]) -> None:
    assert [each["strangers"] for each in shot.values()] == [[]] * len(MET)
