"""A million malformed and adversarial packets through the XDP programs: another job's sums stay exact, and every packet is counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.privileged.packets import found

pytestmark = [pytest.mark.needs("namespaces", "xdp"), pytest.mark.timeout(660)]

PACKETS = 1_000_000


@pytest.fixture(scope="module")
def shot() -> list[dict[str, Any]]:
    """At the switch, at the PS host. A wrong sum fails in there, with its fragment."""
    return list(found("fuzz_run", str(PACKETS), timeout_s=600))


def test_the_sums_went_on_under_a_million_packets(shot: list[dict[str, Any]]) -> None:
    assert sum(each["packets"] for each in shot) >= PACKETS
    assert all(each["sums"] * 2300 >= each["packets"] for each in shot)


def test_every_packet_is_counted_under_a_verdict(shot: list[dict[str, Any]]) -> None:
    switch, ps = shot
    assert switch["counted"] == switch["packets"]
    assert ps["counted"] + ps["passed"] == ps["packets"], "what is no gradient packet goes to the host's stack"


def test_no_packet_touched_a_slot_outside_its_jobs_segment(shot: list[dict[str, Any]]) -> None:
    assert [each["strangers"] for each in shot] == [[], []]


def test_the_packets_met_every_check(shot: list[dict[str, Any]]) -> None:
    switch, ps = (each["verdicts"] for each in shot)
    assert set(switch) >= {
        *("malformed", "corrupt", "bad_sender", "bad_job", "bad_generation", "bad_slot", "stale", "mismatch"),
        *("duplicate", "resent", "aggregated", "completed", "notice", "forwarded", "to_ovs"),
    }
    assert set(ps) >= {
        "malformed",
        "corrupt",
        "bad_job",
        "bad_generation",
        "bad_slot",
        "bad_worker",
        "duplicate",
        "resent",
    }
