"""Calendar queues on the real kernel: while a timetable runs, frames wait at their unit's switch for a slot
in which a circuit leads to their goal.
"""

from __future__ import annotations

import pytest

from tests.privileged.calendar_scenarios import MANY, ROOM, rig, ring, rotor
from tests.privileged.inside import findings

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]


@pytest.mark.parametrize("scenario", ["every_pair", "many_matchings"])
def test_every_frame_waits_for_its_slot_and_none_is_lost_or_overtaken(scenario: str) -> None:
    """Without queues two of three frames would find no circuit."""
    seen = findings(f"calendar_scenarios:{scenario}", rig())
    queues = seen["queues"]
    missed = sum(queue["missed"] for queue in queues.values())
    for numbers in seen["came"]:
        assert sorted(numbers) == [*range(1500)]
        assert numbers == sorted(numbers) or missed
    assert seen["lost"] == 0, "no frame was at a dark port, or at one without a circuit"
    assert {*queues} == {"u1-u2", "u2-u3", "u3-u1", "u4-u1"}
    for queue in queues.values():
        assert queue["held"] == queue["sent"] == 1500
        assert queue["dropped"] == queue["unlit"] == queue["waiting"] == 0
    assert seen["verdicts"]["held"] == 6000 == seen["verdicts"]["lit"]


def test_frames_leave_earlier_by_the_delay_of_their_link() -> None:
    seen = findings("calendar_scenarios:delayed", rig())
    assert [sorted(numbers) for numbers in seen["came"]] == [[*range(1000)]] * 4
    assert seen["lost"] == 0
    missed = {name: queue["missed"] for name, queue in seen["queues"].items()}
    assert sum(missed.values()) < 200, missed  # of 4000


def test_a_queue_is_finite_and_what_waits_is_sent_when_the_timetable_ends() -> None:
    seen = findings("calendar_scenarios:full", rig(ROOM))
    waits, never = seen["waited"]["u1-u2"], seen["waited"]["u2-u3"]
    assert (waits["held"], waits["waiting"], waits["dropped"]) == (ROOM, ROOM, 2 * ROOM)
    assert (never["held"], never["unlit"]) == (0, 30), "no matching leads there"
    assert seen["emptied_s"] < 15, "and not only when the slot of 30 s is over"
    assert seen["came"] == [*range(ROOM)]
    assert seen["marked"] == [*range(ROOM // 4, ROOM)], "what came when a quarter of the room was taken"
    assert seen["queues"]["u1-u2"]["marked"] == len(seen["marked"])
    assert seen["lost"] == 0, "they waited until the circuits of before were lit again"


def test_goals_that_share_a_link_share_its_time() -> None:
    """The core's link, of 2 Mb/s, takes 5.8 ms for each frame."""
    seen = findings("calendar_scenarios:shared", rig(core={"rate_mbps": 2000}))
    assert [sorted(numbers) for numbers in seen["came"]] == [[*range(MANY)]] * 3
    assert sum(seen["sent"]) >= 2 * ROOM
    assert min(seen["sent"]) >= 0.4 * sum(seen["sent"]), seen["sent"]


def test_a_frame_that_its_thread_sends_late_waits_for_the_next_slot() -> None:
    seen = findings("calendar_scenarios:late", rig())
    assert sorted(seen["came"]) == [*range(20), *range(100, 110), *range(200, 210)]
    assert seen["before"]["missed"] + 20 <= seen["queues"]["u1-u2"]["missed"]
    assert seen["verdicts"]["missed"] >= 20
    assert seen["lost"] == 0


def test_valiants_detours_carry_what_direct_circuits_have_no_time_for() -> None:
    """Of a permutation's demand, direct circuits carry one seventh, and detours of two hops a half."""
    seen = findings("calendar_scenarios:permutation", rotor(8))
    direct, vlb = seen["direct"], seen["vlb"]
    assert sum(vlb["came"]) > 2 * sum(direct["came"])
    assert all(by_vlb > by_direct for by_vlb, by_direct in zip(vlb["came"], direct["came"], strict=True))
    for each in (direct, vlb):
        assert each["again"] == 0 == each["lost"]
        queues = each["queues"].values()
        assert sum(queue["waiting"] + queue["unlit"] for queue in queues) == 0
    counts = [(queue["sent"], queue["dropped"]) for queue in vlb["queues"].values()]
    assert sum(vlb["came"] + direct["came"]) + sum(dropped for _, dropped in counts) == 8 * 2 * 4000


def test_hop_on_hop_off_arrives_sooner_than_the_direct_circuit() -> None:
    seen = findings("calendar_scenarios:soonest", rotor(8))
    assert sorted(seen["direct"]["came"]) == sorted(seen["hoho"]["came"]) == [*range(500)]
    assert seen["hoho"]["mean_ms"] < 0.8 * seen["direct"]["mean_ms"]
    assert seen["direct"]["lost"] == seen["hoho"]["lost"] == 0


def test_opera_sends_bulk_traffic_by_direct_circuits_alone() -> None:
    seen = findings("calendar_scenarios:bulk", ring(4))
    quick, slow = seen["came"]
    assert sorted(quick) == sorted(slow) == [*range(300)]
    hops = {name: queue["sent"] for name, queue in seen["queues"].items()}
    assert hops["u2-u4"] == 300, "bulk leaves once"
    assert hops["u1-u3"] == 300
    passed_on = sum(hops.get(f"u{unit}-u3", 0) for unit in (2, 4))
    assert passed_on > 100, "what is not bulk goes round the ring"
    assert "u1-u4" not in hops
    assert "u3-u4" not in hops
    assert seen["lost"] == 0


def test_a_circuit_that_stays_is_not_dark() -> None:
    seen = findings("calendar_scenarios:staying", rig())
    stays, is_dark = (len(each) for each in seen["came"])
    assert stays == 2000
    assert is_dark < 1000
    assert seen["lost"] == 0
