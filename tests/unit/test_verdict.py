"""The verdict on a result: reasons against it, notes, and results that it trusts."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from testbed.messages.coding import as_json
from testbed.ocs.timetable import parse
from testbed.telemetry.bound import Bound, coarse
from testbed.telemetry.events import Happened
from testbed.telemetry.evidence import Evidence, LinkUse, Second
from testbed.telemetry.other_programs import Company
from testbed.telemetry.traffic import OthersTraffic
from testbed.telemetry.verdict import TOLERANCES, verdict
from tests.unit.recordings import RATE_MBPS

QUIET = Second(1.0, (0.2, 0.4), (0.1, 0.2), (0.0, 0.0), (0.0, 0.0), 0.3, 0.6)
LINK = LinkUse("u1h1", RATE_MBPS, 150_000_000, 100_000_000, (0.6, 0.8), 0.0, 0, 0, 100_000_000)
GOOD = Evidence(20.0, 0.0, 10.0, (QUIET,) * 10, (0.001,) * 200, (LINK,), 0, 12)


HOSTS = ("u1h1", "u1h2")


def second(**changes: Any) -> Second:
    return dataclasses.replace(QUIET, **changes)


def evidence_with(**changes: Any) -> Evidence:
    return dataclasses.replace(GOOD, **changes)


ALLOWED = Bound(100.0, 104.0, 40, 2, "u1h1 up", 90.0, 12.0, 1.5, False)


def bound_with(**changes: Any) -> Bound:
    return dataclasses.replace(ALLOWED, **changes)


DOUBTS: dict[str, tuple[Evidence, Bound | None, str, str]] = {
    "the machine stretched it": (
        GOOD,
        bound_with(measured_ms=131.0),
        "machine_bound",
        "machine-bound: 1.31 times what the links allow (131 ms a round, 100 allowed); lower the rates (a "
        "larger scale), or use fewer workers",
    ),
    "links were seldom full, and no sum was seen": (
        GOOD,
        coarse(GOOD),
        "machine_bound",
        "machine-bound: 1.67 times what the links allow (coarse: a link was full 60 % of the time with "
        "traffic, and no sum was seen); "
        "lower the rates (a larger scale), or use fewer workers",
    ),
    "faster than links can be": (
        GOOD,
        bound_with(measured_ms=90.0),
        "beyond_links",
        "faster than links can be: 0.90 times what the links allow (90 ms a round, 100 allowed); they let "
        "pass more than their rates",
    ),
    "sums too few to judge": (
        GOOD,
        None,
        "no_bound",
        "no sums of this job were seen often enough to compare them with what the links allow",
    ),
    "time not sampled": (
        evidence_with(unsampled_s=5.0),
        ALLOWED,
        "not_sampled",
        "5.0 s of 20.0 s were not sampled (limit 5 %)",
    ),
    "sampling failed": (
        evidence_with(failure="OSError: gone"),
        ALLOWED,
        "not_sampled",
        "sampling failed (OSError: gone)",
    ),
    "above the rate": (
        evidence_with(links=(LINK, dataclasses.replace(LINK, name="u1h2", excess=0.25))),
        ALLOWED,
        "above_rate",
        "link u1h2 sent 25 % more than its 200 Mb/s allow (limit 3 %)",
    ),
    "no rate": (
        evidence_with(links=(dataclasses.replace(LINK, rate_mbps=None, utilisation=(812.0, 900.0)),)),
        None,
        "no_rate",
        "no rates: the machine is what is measured: u1h1 812 Mb/s",
    ),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_a_reason_against_a_result(case: str) -> None:
    evidence, allowed, name, text = DOUBTS[case]
    given = verdict(evidence, allowed, hosts=HOSTS)
    assert [(reason.name, reason.text) for reason in given.reasons] == [(name, text)]
    assert given.line == f"verdict: not trustworthy: {text}"
    assert given.trustworthy is False


@pytest.mark.parametrize(
    ("evidence", "bound", "line"),
    [
        (GOOD, ALLOWED, "within 4 % of what the links allow (104 ms a round, 100 allowed)"),
        (
            GOOD,
            bound_with(measured_ms=99.0),
            "within 0 % of what the links allow (99 ms a round, 100 allowed)",
        ),
        (
            evidence_with(links=(dataclasses.replace(LINK, excess=0.03),)),
            ALLOWED,
            "within 4 % of what the links allow",
        ),
        (
            evidence_with(seconds=(second(link=0.95),) * 10),
            coarse(evidence_with(seconds=(second(link=0.95),) * 10)),
            "within 5 % of what the links allow (coarse: a link was full 95 % of the time with traffic, and "
            "no sum was seen)",
        ),
    ],
)
def test_a_result_to_trust(evidence: Evidence, bound: Bound, line: str) -> None:
    given = verdict(evidence, bound, hosts=HOSTS)
    assert given.trustworthy
    assert given.line.startswith(f"verdict: trustworthy: {line}")


@pytest.mark.parametrize("seconds", [(), (second(busy=(1.0, 1.0)),) * 10])
def test_busy_cores_are_no_reason_by_themselves(seconds: tuple[Second, ...]) -> None:
    assert verdict(evidence_with(seconds=seconds), ALLOWED, hosts=HOSTS).trustworthy


@pytest.mark.parametrize("hosts", [("u3h1",), ()])
def test_a_job_that_sent_nothing_has_no_verdict(hosts: tuple[str, ...]) -> None:
    given = verdict(GOOD, None, hosts=hosts)  # the traffic is another job's
    assert json.loads(json.dumps(as_json(given.said()))) == {
        "trustworthy": None,
        "line": "verdict: none: this job sent nothing over links, so there is nothing to judge",
        "reasons": [],
        "notes": [
            {"name": "no_traffic", "text": "this job sent nothing over links, so there is nothing to judge"},
        ],
    }


@pytest.mark.parametrize("bound", [None, ALLOWED, bound_with(measured_ms=900.0)])
def test_a_job_that_sent_next_to_nothing_has_none_either(bound: Bound | None) -> None:
    evidence = evidence_with(links=(dataclasses.replace(LINK, bytes=60_000, most_bytes=48_400),))
    given = verdict(evidence, bound, hosts=HOSTS)
    assert given.trustworthy is None
    assert given.line == (
        "verdict: none: this job sent 48.4 kB over its fullest link, which is too little to judge "
        "(limit 100 kB)"
    )
    assert verdict(evidence, bound, hosts=HOSTS, failure="worker 1 exited with code 1").trustworthy is False


def test_several_reasons_are_all_told() -> None:
    evidence = evidence_with(unsampled_s=5.0, links=(dataclasses.replace(LINK, excess=0.25),))
    given = verdict(
        evidence, bound_with(measured_ms=200.0), hosts=HOSTS, failure="worker 1 exited with code 1"
    )
    assert [reason.name for reason in given.reasons] == [
        "failed",
        "machine_bound",
        "above_rate",
        "not_sampled",
    ]
    assert given.said().reasons[1].name == "machine_bound"


def test_what_the_machine_was_busy_with_is_told_where_it_shaped_a_result() -> None:
    evidence = evidence_with(seconds=(second(busy=(0.5, 0.9), steal=(0.0, 0.06)),) * 10)
    assert "processors" not in [note.name for note in verdict(evidence, ALLOWED, hosts=HOSTS).notes]
    notes = {
        note.name: note.text for note in verdict(evidence, bound_with(measured_ms=200.0), hosts=HOSTS).notes
    }
    assert notes["processors"] == (
        "cores were busy 70 % of the time with traffic, 15 % on packets, 3 % taken by the hypervisor, "
        "some process waited for a core 30 % of it, a worker's script 1.5 ms of a round"
    )


@pytest.mark.parametrize(
    ("steal", "addition"),
    [
        ((0.0, 0.03), ""),
        ((0.02, 0.12), "; the hypervisor took 7 % of the cores, some of which may count as computing"),
    ],
)
def test_a_result_to_trust_says_what_the_hypervisor_took(steal: tuple[float, float], addition: str) -> None:
    given = verdict(evidence_with(seconds=(second(steal=steal),) * 10), ALLOWED, hosts=HOSTS)
    assert given.trustworthy
    assert given.line == (
        f"verdict: trustworthy: within 4 % of what the links allow (104 ms a round, 100 allowed){addition}"
    )
    assert [note.name for note in given.notes] == (["steal"] if addition else [])


def test_a_result_to_trust_says_that_nothing_was_summed_where_it_was_to_be() -> None:
    text = "nothing was summed in the network: gloo carried all"
    given = verdict(GOOD, ALLOWED, hosts=HOSTS, unused=text)
    assert given.trustworthy
    assert given.line.endswith("(104 ms a round, 100 allowed); nothing was summed in the network")
    assert [(note.name, note.text) for note in given.notes] == [("unused", text)]
    little = verdict(evidence_with(links=()), None, hosts=HOSTS, unused=text)
    assert little.trustworthy is None
    assert little.line.endswith(f"so there is nothing to judge; {text}")


def test_drops_at_a_full_queue_are_a_note() -> None:
    drops = (
        dataclasses.replace(LINK, queue_drops=40),
        dataclasses.replace(LINK, name="u4h1", queue_drops=60),
    )
    workers = [{"retransmits": 5, "timeouts": 1, "allreduce": {"busy_s": 5.0}}, None, {"retransmits": 2}]
    evidence = evidence_with(links=drops, device_drops={"u1h1": 1}, softnet_dropped=99)
    given = verdict(
        evidence, bound_with(shared=True), workers, hosts=HOSTS, happened=Happened(faults=["u1h1 up loss 1%"])
    )
    assert given.trustworthy
    assert [(note.name, note.text) for note in given.notes] == [
        ("faults", "faults were set on links: u1h1 up loss 1%; the bound is without them"),
        (
            "shared",
            "other jobs crossed its optical links: of these it is allowed what they left, and at least its "
            "fair share",
        ),
        (
            "queue_drops",
            "links dropped 100 frames at a full queue, as a finite buffer does; 60 of them on u4h1",
        ),
        ("softnet_drops", "the kernel dropped 99 frames before it looked at them"),
        ("device_drops", "1 frame was lost where a device had no room, 1 of them at u1h1"),
        ("retransmits", "workers sent 7 packets again, which the bound does not count; 1 timeout"),
    ]


def test_sums_that_lack_workers_are_a_note() -> None:
    workers = [
        {"degraded_sums": 3, "fewest_contributors": 2, "left_out": 0},
        {"degraded_sums": 2, "fewest_contributors": 3, "left_out": 7},
        {"degraded_sums": 0, "fewest_contributors": None},
        None,
    ]
    assert [(note.name, note.text) for note in verdict(GOOD, ALLOWED, workers, hosts=HOSTS).notes] == [
        ("degraded", "3 sums lacked workers, 2 of 4 contributed at least: means are over those who did"),
        (
            "left_out",
            "7 values of workers whose votes came late were left out of their sums: the scale that the "
            "others agreed on has no room for them",
        ),
    ]


def test_sums_that_nobody_contributed_to_are_a_note() -> None:
    workers = [{"degraded_sums": 3, "fewest_contributors": 0}, {"degraded_sums": 1, "fewest_contributors": 1}]
    (note,) = verdict(GOOD, ALLOWED, workers, hosts=HOSTS).notes
    assert note.text == (
        "3 sums lacked workers, 0 of 2 contributed at least: means are over those who did, and zeros where "
        "nobody did"
    )


def test_a_job_that_did_not_wait_for_all_may_be_faster_than_its_bound() -> None:
    faster = bound_with(measured_ms=60.0)
    lacks = [{"degraded_sums": 3, "fewest_contributors": 2}, None]
    judged = verdict(GOOD, faster, lacks, hosts=HOSTS)
    assert judged.trustworthy
    assert judged.line == (
        "verdict: trustworthy: 0.60 times what links allow if all are waited for (60 ms a round, 100 allowed)"
    )
    assert not verdict(GOOD, faster, [{"degraded_sums": 0}], hosts=HOSTS).trustworthy


def test_values_that_count_as_zero_are_a_note_where_they_are_many() -> None:
    few, many = {"zeroed": 9, "scaled": 1000}, {"zeroed": 23, "scaled": 1000}
    assert verdict(GOOD, ALLOWED, [few, few], hosts=HOSTS).notes == ()
    assert [
        (note.name, note.text) for note in verdict(GOOD, ALLOWED, [few, many, None], hosts=HOSTS).notes
    ] == [
        (
            "zeroed",
            "2.3 % of worker 1's values were too small beside the largest of their fragment, and counted as "
            "0",
        )
    ]


@pytest.mark.parametrize(
    "left", [{"retransmits": "5"}, {"timeouts": None}, {"allreduce": 5}, {"retransmits": math.nan}]
)
def test_what_a_worker_leaves_is_its_own_business(left: dict[str, Any]) -> None:
    assert verdict(GOOD, ALLOWED, [left], hosts=HOSTS).notes == ()


def test_the_limits_are_the_callers() -> None:
    strict = dataclasses.replace(TOLERANCES, ratio=1.01)
    assert [reason.name for reason in verdict(GOOD, ALLOWED, tolerances=strict, hosts=HOSTS).reasons] == [
        "machine_bound"
    ]


def test_frames_that_a_full_queue_dropped_are_named_where_they_may_be_why() -> None:
    few, many = (
        verdict(
            evidence_with(links=(dataclasses.replace(LINK, queue_drops=count),)),
            bound_with(measured_ms=300.0),
            hosts=HOSTS,
        ).line
        for count in (1, 100_000)
    )
    assert "lower the rates" in few
    assert "dropped" not in few
    assert (
        "100000 frames dropped at a full queue may be why (see buffer_packets); else lower the rates" in many
    )


@pytest.mark.parametrize("allowed", [ALLOWED, bound_with(measured_ms=300.0), None])
def test_nothing_is_trusted_without_statistics_and_the_reason_is_that(allowed: Bound | None) -> None:
    text = "statistics of workers 0, 1 are missing: No space left on device"
    given = verdict(GOOD, allowed, [None, None], hosts=HOSTS, missing=text)
    assert given.trustworthy is False
    assert given.line == f"verdict: not trustworthy: {text}"


DOWN, RATES = "u1h1 was down for 2.0 s", "u1h2 had 100, then 50 Mb/s"


@pytest.mark.parametrize(
    ("happened", "name", "text"),
    [
        (
            Happened(changes=[RATES]),
            "links_changed",
            f"links were changed by hand, which the bound heeds: {RATES}",
        ),
        (
            Happened(changes=[DOWN]),
            "links_changed",
            f"links were changed by hand, which the bound does not count: {DOWN}",
        ),
        (
            Happened(changes=[DOWN, RATES]),
            "links_changed",
            "links were changed by hand, of which the bound heeds the rates, and does not count the time "
            f"down: {DOWN}; {RATES}",
        ),
        (
            Happened(apart_s={"u1-u2": 3.04, "u1-u3": 0.0152}),
            "apart",
            "no light joined units of the job, which the bound heeds: u1-u2 for 3.0 s; u1-u3 for 15.2 ms",
        ),
        (
            Happened(changes=[DOWN]),
            "device_drops",
            "7 frames were lost where a device was down, or had no room, 7 of them at u1h1",
        ),
    ],
)
def test_notes_say_what_the_bound_counts(happened: Happened, name: str, text: str) -> None:
    drops = {"u1h1": 7} if name == "device_drops" else {}
    given = verdict(evidence_with(device_drops=drops), ALLOWED, hosts=HOSTS, happened=happened)
    assert [note.text for note in given.notes if note.name == name] == [text]


SLOW = bound_with(measured_ms=435.0)
TABLE = parse({"period_ms": 15, "guard_ms": 0.5, "matchings": [{"start_ms": 0, "circuits": []}]}, ())
CAUSES: dict[str, tuple[Happened, str, str]] = {
    "frames lost in the dark": (
        Happened(lost={"u1o1": (3_000, 0), "u1": (0, 6_000)}),
        "lost_light",
        "the optical switch lost 3000 frames in the dark and 6000 frames without a circuit",
    ),
    "faults": (
        Happened(faults=["u1h1 up loss 10%"]),
        "faults",
        "faults were set on links (u1h1 up loss 10%)",
    ),
    "a link that was down": (
        Happened(changes=["u1h1 was down for 2.0 s"]),
        "links_changed",
        "u1h1 was down for 2.0 s",
    ),
    "other traffic": (
        Happened(traffic=[OthersTraffic("u1h1", 17, 5001, 156_000_000)]),
        "other_traffic",
        "other traffic was on its links (156 MB on u1h1 (UDP, port 5001))",
    ),
}


@pytest.mark.parametrize("case", CAUSES)
def test_advice_follows_from_the_cause(case: str) -> None:
    happened, name, cause = CAUSES[case]
    given = verdict(GOOD, SLOW, [{"retransmits": 9}], hosts=HOSTS, happened=happened)
    assert [(reason.name, reason.text) for reason in given.reasons] == [
        (
            name,
            f"4.35 times what the links allow (435 ms a round, 100 allowed): {cause}; other rates do not "
            "mend that",
        )
    ]
    trusted = verdict(GOOD, ALLOWED, [{"retransmits": 9}], hosts=HOSTS, happened=happened)
    assert trusted.trustworthy, "where it mattered it is a reason, else a note"
    assert name in [note.name for note in trusted.notes]


def test_no_advice_has_a_number_that_was_not_shown_to_hold() -> None:
    line = verdict(GOOD, SLOW, hosts=HOSTS).line
    assert line.endswith("; lower the rates (a larger scale), or use fewer workers")


def test_little_of_other_traffic_and_a_few_lost_frames_explain_nothing() -> None:
    little = Happened(traffic=[OthersTraffic("u1h1", 1, 0, 9_000)], lost={"u1o1": (1, 0)}, timetables=[TABLE])
    given = verdict(GOOD, SLOW, hosts=HOSTS, happened=little)
    assert [reason.name for reason in given.reasons] == ["machine_bound"]
    notes = {note.name: note.text for note in given.notes}
    assert notes["lost_light"] == "the optical switch lost 1 frame in the dark: 1 at u1o1"
    assert notes["other_traffic"] == "other traffic on the job's links: 0.009 MB on u1h1 (ICMP)"
    assert notes["timetable"] == (
        "circuits went by a timetable of 1 matchings in 15 ms, dark for the first 0.5 ms of each, which the "
        "bound heeds"
    )


FULL = evidence_with(seconds=(second(link=0.95),) * 10)
OPTICAL = dataclasses.replace(LINK, name="u1o1")
BY_COUNTERS = "in the counters that this is made of"


def on(link: str, sent: int, up: int = 0, port: int = 5001) -> OthersTraffic:
    return OthersTraffic(link, 17, port, sent, up)


@pytest.mark.parametrize(
    ("bound", "link", "is_trusted"),
    [
        (coarse(FULL), "u1h1", False),
        (coarse(FULL), "u1o1", False),
        (bound_with(shared=True), "u1o1", False),
        (bound_with(shared=True), "u1c", False),
        (bound_with(shared=True), "u1h1", True),  # hosts' links count by what sums need
        (ALLOWED, "u1o1", True),  # and here all links do
    ],
)
def test_a_bound_by_counters_with_other_traffic_in_them_is_not_trusted(
    bound: Bound, link: str, is_trusted: bool
) -> None:
    evidence = dataclasses.replace(FULL, links=(LINK, OPTICAL, dataclasses.replace(LINK, name="u1c")))
    busy, little = Happened(traffic=[on(link, 9_000_000)]), Happened(traffic=[on(link, 1_900_000)])
    given = verdict(evidence, bound, hosts=HOSTS, happened=busy)
    assert given.trustworthy == is_trusted
    assert [reason.name for reason in given.reasons] == ["other_traffic"] * (not is_trusted)
    if not is_trusted:
        assert given.line.startswith("verdict: not trustworthy: within ")
        assert given.line.endswith(f", but other traffic is {BY_COUNTERS} (9 MB on {link} (UDP, port 5001))")
    assert verdict(evidence, bound, hosts=HOSTS, happened=little).trustworthy
    many = Happened(traffic=[on(link, 500_000, port=port) for port in range(5000, 5010)])
    assert verdict(evidence, bound, hosts=HOSTS, happened=many).trustworthy == is_trusted, "together"


def test_a_bound_by_counters_is_not_trusted_where_nobody_counted_other_traffic() -> None:
    away = Happened(uncounted="the controller was away")
    for bound in (coarse(FULL), bound_with(shared=True)):
        given = verdict(FULL, bound, hosts=HOSTS, happened=away)
        assert [reason.name for reason in given.reasons] == ["traffic_unknown"]
        assert given.line.endswith(
            f", but whether other traffic is {BY_COUNTERS} is not known: the controller was away"
        )
    given = verdict(FULL, ALLOWED, hosts=HOSTS, happened=away)
    assert given.trustworthy
    assert [(note.name, note.text) for note in given.notes] == [
        ("traffic_unknown", "what other traffic was on its links is not known: the controller was away")
    ]


def test_other_traffic_is_nothing_that_the_job_sent() -> None:
    """The link had 50 MB down and 20 MB up: the job has what others have not."""
    link = dataclasses.replace(LINK, bytes=70_000_000, most_bytes=50_000_000, bytes_up=20_000_000)
    evidence = evidence_with(links=(link,))

    def judged(*rows: OthersTraffic) -> tuple[bool | None, str]:
        given = verdict(evidence, ALLOWED, hosts=HOSTS, happened=Happened(traffic=rows))
        return given.trustworthy, given.line

    assert judged()[0]
    assert judged(on("u1h1", 60_000_000, 15_000_000))[0], "5 MB each way are the job's"
    assert judged(on("u1h1", 69_900_000, 19_950_000)) == (
        None,
        "verdict: none: this job sent 50 kB over its fullest link, which is too little to judge "
        "(limit 100 kB)",
    )
    dropped = judged(on("u1h1", 90_000_000, 20_000_000))  # of what is for it some was lost before the link
    assert dropped[1] == "verdict: none: this job sent nothing over links, so there is nothing to judge"


def test_notes_and_reasons_are_of_the_links_that_the_job_uses() -> None:
    elsewhere = dataclasses.replace(LINK, name="u4h1", queue_drops=60, excess=0.5)
    evidence = evidence_with(links=(LINK, elsewhere), device_drops={"u4h1": 3})
    given = verdict(evidence, ALLOWED, hosts=HOSTS, happened=Happened(links=frozenset(HOSTS)))
    assert given.trustworthy
    assert given.notes == ()
    of_all = verdict(evidence, ALLOWED, hosts=HOSTS)
    assert [reason.name for reason in of_all.reasons] == ["above_rate"]
    assert [note.name for note in of_all.notes] == ["processors", "queue_drops", "device_drops"]


def test_others_on_the_machine_are_named() -> None:
    company = Company(1.25, ("colleague",))
    given = verdict(GOOD, SLOW, hosts=HOSTS, happened=Happened(company=company))
    words = "programs outside of this testbed took 1.25 cores; other testbeds ran: colleague"
    assert given.line.endswith(
        f"; {words}: run it without them, or lower the rates (a larger scale), or use fewer workers"
    )
    lossy = verdict(GOOD, SLOW, hosts=HOSTS, happened=Happened(faults=["u1h1 up loss 1%"], company=company))
    assert lossy.line.endswith(f"; other rates do not mend that; besides, {words}")
    trusted = verdict(GOOD, ALLOWED, hosts=HOSTS, happened=Happened(company=company))
    assert [(note.name, note.text) for note in trusted.notes] == [("company", words)]
