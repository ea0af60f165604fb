"""A link that goes down is gone round, and its port is in no plan, until it comes back."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import Testbed, bounded, command, pid_of, running, start, wait_for
from tests.privileged.test_manual_links import LONG, a_job, answers, refused, said

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]
PINGS, EVERY_S = 25, 0.1
MOST_LOST = 5  # half a second, on a busy machine; measured are some 10 ms (tests/bench/link_down.py)
CORE = """
units: [{hosts: 1}, {hosts: 1}, {hosts: 1}]
optical_ports: 1
core: {}
scale: 200
ocs: {circuits: [[u1o1, u2o1]]}
"""


def test_a_link_that_goes_down_is_gone_round_and_comes_back() -> None:
    with running() as testbed:
        pings_go_round_both_ways_whichever_end_is_down(testbed)
        plans_leave_the_port_out(testbed)
        a_link_that_loses_its_carrier_is_noticed(testbed)
        a_device_that_is_deleted_is_gone_round(testbed)


def test_jobs_and_timetables_over_a_link_that_goes_down(tmp_path: Path) -> None:
    with running() as testbed:
        jobs_under_way_go_on(testbed, tmp_path)
        a_policy_asks_for_another_circuit(testbed, tmp_path)
        a_timetable_loses_the_slots_of_a_port_that_is_down(testbed, tmp_path)


def bytes_of(testbed: Testbed, *links: str) -> int:
    counted = {link["name"]: link["bytes"] for link in said(testbed, "status")["links"]}
    return sum(counted[link] for link in links)


def pinged(testbed: Testbed, source: str, host: str) -> int:
    """Return how many of 25 pings were answered."""
    ping = ("ping", "-c", str(PINGS), "-i", str(EVERY_S), "-W", "1", "-q", host)
    text = command("testbed.exec", "--name", testbed.name, source, "--", *ping).stdout
    answered = re.search(r"(\d+) received", text)
    assert answered, text
    return int(answered[1])


def under_ping(testbed: Testbed, source: str, host: str, *words: str) -> int:
    """Set links in the middle of 25 pings; return how many were lost."""
    ping = ("ping", "-c", str(PINGS), "-i", str(EVERY_S), host)
    with bounded(start("testbed.exec", "--name", testbed.name, source, "--", *ping)) as process:
        assert process.stdout is not None
        wait_for(lambda: "icmp_seq=2 " in process.stdout.readline(), "the second answer")  # type: ignore[union-attr]
        said(testbed, "link", "set", *words)
        text = process.communicate(timeout=CALL_S)[0]
    answered = re.search(r"(\d+) received", text)
    assert answered, text
    return PINGS - int(answered[1])


def pings_go_round_both_ways_whichever_end_is_down(testbed: Testbed) -> None:
    for port, source, host in (("u2o2", "u2h1", "u3h1"), ("u3o1", "u3h2", "u2h2")):
        round_, direct = bytes_of(testbed, "u1o2", "u4o1"), bytes_of(testbed, "u2o2")
        assert under_ping(testbed, source, host, port, "--down") <= MOST_LOST
        assert pinged(testbed, host, source) == PINGS, "the other direction, too"
        assert bytes_of(testbed, "u1o2", "u4o1") - round_ > 4 * PINGS * 64
        assert said(testbed, "circuits", "list")["down"] == [port]
        assert f"{port} is down" in command("testbed.circuits", "--name", testbed.name).stdout
        status = said(testbed, "status")
        assert (status["down"], status["circuits"][2]) == ([port], ["u2o2", "u3o1"])
        assert re.search(rf"^  down +{port} ", command("testbed.status", "--name", testbed.name).stdout, re.M)
        direct = bytes_of(testbed, "u2o2")
        assert under_ping(testbed, source, host, port, "--up") <= MOST_LOST
        wait_for(lambda: not said(testbed, "circuits", "list")["down"], "the port is up")
        assert pinged(testbed, source, host) == PINGS
        assert bytes_of(testbed, "u2o2") - direct > 2 * PINGS * 64, "over the circuit again"
    assert said(testbed, "circuits", "history") == [], "circuits are as they were"


def plans_leave_the_port_out(testbed: Testbed) -> None:
    said(testbed, "link", "set", "u2o2", "--down")
    assert said(testbed, "circuits", "plan", "u2-u3")["added"] == [["u2o1", "u3o1"]]
    text = refused(testbed, "circuits", "request", "u2-u3", "u2-u1")
    assert "demands need 2 optical ports of u2; it has 1; u2o2 is down, and no free port" in text
    text = refused(testbed, "circuits", "set", "u1o1-u2o2")
    assert "circuit u1o1-u2o2: the link of u2o2 is down; ports whose links are up are accepted" in text
    said(testbed, "circuits", "request", "u2-u3")
    assert answers(testbed, "u2h1", "u3h1")
    said(testbed, "link", "set", "u2o2", "--up")
    wait_for(lambda: not said(testbed, "circuits", "list")["down"], "the port is up")
    said(testbed, "circuits", "reset")


def ip_link(testbed: Testbed, *words: str) -> None:
    """Change a device where the switches' ends of links are."""
    switch = str(pid_of(testbed.pid, "ovs-vswitchd"))
    argv = ["nsenter", "--net", "--target", switch, "ip", "link", *words]
    subprocess.run(argv, check=True, timeout=CALL_S)


def a_link_that_loses_its_carrier_is_noticed(testbed: Testbed) -> None:
    """`ip link set` at either end, of which nobody tells the controller."""
    for device in ("x-u2o2", "u2-o2"):
        ip_link(testbed, "set", device, "down")
        wait_for(lambda: said(testbed, "circuits", "list")["down"] == ["u2o2"], "it is noticed")
        assert answers(testbed, "u2h1", "u3h1")
        assert "  down        u2o2 " in command("testbed.status", "--name", testbed.name).stdout
        ip_link(testbed, "set", device, "up")
        wait_for(lambda: not said(testbed, "circuits", "list")["down"], "it is back")
        assert answers(testbed, "u2h1", "u3h1")


def jobs_under_way_go_on(testbed: Testbed, folder: Path) -> None:
    for sync in ("ring", "inc"):
        with a_job(testbed, folder, "u2:1,u3:1", "--sync", sync):
            before = bytes_of(testbed, "u1o2")
            said(testbed, "link", "set", "u2o2", "--down")
            wait_for(lambda: bytes_of(testbed, "u1o2") - before > 1_000_000, f"{sync} goes round")  # noqa: B023
            (job,) = said(testbed, "status")["jobs"]
            assert {"u1o2", "u4o1"} <= set(job["uses"]["links"])
            said(testbed, "link", "set", "u2o2", "--up")
            wait_for(lambda: not said(testbed, "circuits", "list")["down"], "the port is up")
        (folder / "over").unlink()
        result = json.loads((folder / "result.json").read_text())
        assert result["sync"] == sync
        assert {"u2o2", "u3o1", "u1o2", "u4o1"} <= {link["name"] for link in result["links"]}
        notes = [each["text"] for each in result["verdict"]["notes"] if each["name"] == "links_changed"]
        assert re.search(r"u2o2 was down for [0-9.]+ s", notes[0]), notes


def a_policy_asks_for_another_circuit(testbed: Testbed, folder: Path) -> None:
    def between_u1_and_u3() -> list[list[str]]:
        lit = said(testbed, "circuits", "list")["circuits"]
        return [pair for pair in lit if [end[:2] for end in pair] == ["u1", "u3"]]

    jobs = folder / "jobs.yaml"
    job = {"script": LONG, "arguments": [str(folder / "over")], "iterations": 1000, "megabytes": 1.0}
    job |= {"workers": 1, "place": "u1:1", "ps": "u3", "limit_s": 90}
    jobs.write_text(json.dumps({"policy": "noinc-fcfs", "jobs": [job]}))
    words = ("--json", str(folder / "batch.json"), str(jobs))
    with bounded(start("testbed.submit", "--name", testbed.name, *words, together=True)) as batch:
        wait_for(lambda: len(between_u1_and_u3()) == 1, "a circuit for the job")
        ((port, _),) = between_u1_and_u3()
        wait_for(lambda: said(testbed, "status")["schedule"]["jobs"][0]["state"] == "running", "it runs")
        said(testbed, "link", "set", port, "--down")
        wait_for(lambda: [port not in pair for pair in between_u1_and_u3()] == [True], "another one")
        (folder / "over").touch()
        text = batch.communicate(timeout=CALL_S)[0]
    assert batch.returncode == 0, text
    (folder / "over").unlink()
    said(testbed, "link", "set", port, "--up")
    wait_for(lambda: not said(testbed, "circuits", "list")["down"], "the port is up")
    said(testbed, "circuits", "reset")


def a_timetable_loses_the_slots_of_a_port_that_is_down(testbed: Testbed, folder: Path) -> None:
    timetable = folder / "table.yaml"
    timetable.write_text(
        "period_ms: 20\nguard_ms: 1\nmatchings:\n"
        "- {start_ms: 0, circuits: [[u1o1, u2o1], [u3o1, u4o1]]}\n"
        "- {start_ms: 10, circuits: [[u1o1, u3o1], [u2o1, u4o1]]}\n"
    )
    said(testbed, "circuits", "schedule", str(timetable))
    assert answers(testbed, "u1h1", "u2h1")
    said(testbed, "link", "set", "u2o1", "--down")
    before = bytes_of(testbed, "u3o1")
    assert pinged(testbed, "u1h1", "u2h1") == 0, "no other way within a timetable"
    assert pinged(testbed, "u1h1", "u3h1") == PINGS
    assert bytes_of(testbed, "u3o1") > before
    said(testbed, "link", "set", "u2o1", "--up")
    wait_for(lambda: answers(testbed, "u1h1", "u2h1"), "its slots are back")
    said(testbed, "circuits", "unschedule")


def a_device_that_is_deleted_is_gone_round(testbed: Testbed) -> None:
    assert answers(testbed, "u2h1", "u3h1")
    ip_link(testbed, "delete", "u2-o2")
    wait_for(lambda: said(testbed, "circuits", "list")["down"] == ["u2o2"], "it is noticed")
    assert pinged(testbed, "u2h1", "u3h1") == PINGS


def test_a_unit_without_its_core_link_is_reached_over_a_circuit(tmp_path: Path) -> None:
    config = tmp_path / "core.yaml"
    config.write_text(CORE)
    with running(str(config)) as testbed:
        assert answers(testbed, "u1h1", "u3h1")
        before = bytes_of(testbed, "u1o1")
        said(testbed, "link", "set", "u1c", "--down")
        assert said(testbed, "circuits", "list")["down"] == ["u1c"]
        assert pinged(testbed, "u1h1", "u3h1") == PINGS
        assert pinged(testbed, "u3h1", "u1h1") == PINGS
        assert bytes_of(testbed, "u1o1") - before > 4 * PINGS * 64, "over u2"
        said(testbed, "link", "set", "u1o1", "--down")
        time.sleep(1)
        assert not answers(testbed, "u1h1", "u3h1"), "there is no other way"
        said(testbed, "link", "reset", "u1")
        wait_for(lambda: answers(testbed, "u1h1", "u3h1"), "both are back")
