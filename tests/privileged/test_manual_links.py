"""Links and circuits by hand on one running testbed, under a job, and what `status` says of them."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import Testbed, bounded, command, running, start, wait_for

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]
LONG = str(Path(__file__).with_name("jobs") / "long.py")
UNDELAYED = {"delay_ms": 0, "jitter_ms": 0}
CONFIG = """
units: [{hosts: 3}, {hosts: 2}, {hosts: 2, rate_mbps: 60}, {hosts: 2, optical_ports: 0}]
core: {rate_mbps: 50}
scale: 1
host_rate_mbps: 100
optical_rate_mbps: 100
links: {u1o2: 80, u3h2: 40}
ocs:
  lock_ms: {lognormal: [8, 3]}
  lock_failure: 0.4
  retry_ms: {values: [10, 20]}
  ports: {u1o1: {lock_ms: 40}}
"""


def said(testbed: Testbed, module: str, *words: str) -> Any:
    ended = command(f"testbed.{module}", *words, "--name", testbed.name, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def refused(testbed: Testbed, module: str, *words: str) -> str:
    ended = command(f"testbed.{module}", *words, "--name", testbed.name)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    return ended.stderr


def answers(testbed: Testbed, source: str, host: str) -> bool:
    ping = ("ping", "-c", "1", "-W", "1", host)
    return command("testbed.exec", "--name", testbed.name, source, "--", *ping).returncode == 0


@contextmanager
def a_job(testbed: Testbed, folder: Path, place: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A job that sums until the file `folder / over` is there."""
    words = ("--place", place, "--timeout", "120", "--json", str(folder / "result.json"), *more)
    job = start("testbed.run", "--name", testbed.name, *words, LONG, str(folder / "over"), together=True)
    with bounded(job):
        assert job.stdout is not None
        wait_for(lambda: "first sum" in job.stdout.readline(), "the job's first sum")  # type: ignore[union-attr]
        yield job
        (folder / "over").touch()
        output = job.communicate(timeout=CALL_S)[0]
        assert job.returncode == 0, output


def test_links_and_circuits_by_hand(tmp_path: Path) -> None:
    config = tmp_path / "three.yaml"
    config.write_text(CONFIG)
    with running(str(config)) as testbed:
        links_are_set_and_carry_or_not(testbed)
        links_delay(testbed)
        circuits_are_set_cleared_and_reset(testbed)
        transceivers_that_fail_to_lock_are_dark_for_as_long_as_is_said(testbed)
        units_without_a_circuit_reach_each_other_over_the_core(testbed, tmp_path)
        a_job_keeps_its_circuits_and_follows_its_links(testbed, tmp_path)
        a_script_is_carried_out_and_a_capture_comes_on_stdout(testbed, tmp_path)


def links_are_set_and_carry_or_not(testbed: Testbed) -> None:
    (set_,) = said(testbed, "link", "set", "u1h1", "--rate", "20")
    assert (
        set_
        == {"link": "u1h1", "rate_mbps": 20, "configured_mbps": 100, "by_hand_mbps": 20, "up": True}
        | UNDELAYED
    )
    assert "20 Mb/s" in command("testbed.status", "--name", testbed.name).stdout
    assert answers(testbed, "u1h1", "u1h2")
    said(testbed, "link", "set", "u1h2", "--down")
    assert "down        u1h2" in command("testbed.status", "--name", testbed.name).stdout
    assert not answers(testbed, "u1h1", "u1h2")
    assert answers(testbed, "u1h1", "u1h3"), "the others carry"
    said(testbed, "link", "set", "u1h2", "--up")
    assert answers(testbed, "u1h1", "u1h2")
    unit = said(testbed, "link", "set", "u2", "--rate", "30")
    assert [link["link"] for link in unit] == ["u2h1", "u2h2", "u2o1", "u2o2", "u2c"]
    own = {"u1o2": 80, "u3h1": 60, "u3h2": 40, "u3o1": 60, "u3o2": 60, "u3c": 60}
    own |= dict.fromkeys(("u1c", "u2c", "u4c"), 50)
    reset = said(testbed, "link", "reset", "all")
    assert {link["link"]: link["rate_mbps"] for link in reset if link["rate_mbps"] != 100} == own
    assert all(link["rate_mbps"] == link["configured_mbps"] for link in reset)
    page = command("testbed.status", "--name", testbed.name).stdout
    assert "u1o2: 0.08 Gb/s" in page
    assert "u3h2: 0.04 Gb/s" in page
    assert "u3o1 u3o2 u3c: 0.06 Gb/s" in page
    assert "no such" not in refused(testbed, "link", "set", "u1h1")
    assert "link u9h1: there is none" in refused(testbed, "link", "set", "u1h1", "u9h1", "--down")
    assert "Mb/s are accepted" in refused(testbed, "link", "set", "u1h1", "--rate", "-3")
    assert all(link["up"] for link in said(testbed, "link", "list"))


def links_delay(testbed: Testbed) -> None:
    (set_,) = said(testbed, "link", "set", "u1h1", "--delay", "30ms", "--rate", "20")
    assert (set_["delay_ms"], set_["rate_mbps"]) == (30, 20)
    ping = ("ping", "-c", "3", "-q", "u1h2")
    times = command("testbed.exec", "--name", testbed.name, "u1h1", "--", *ping).stdout
    assert float(times.rpartition("= ")[2].partition("/")[0]) >= 60, "there and back"
    said(testbed, "link", "reset", "u1h1")
    (link, *_) = said(testbed, "link", "list")
    assert (link["rate_mbps"], link["delay_ms"], link["jitter_ms"]) == (100, 0, 0)


def circuits_are_set_cleared_and_reset(testbed: Testbed) -> None:
    configured = said(testbed, "circuits", "list")["circuits"]
    assert said(testbed, "circuits", "set", "u1o1-u2o1", "u1o2-u2o2")["added"]
    assert said(testbed, "circuits", "list")["circuits"] == [["u1o1", "u2o1"], ["u1o2", "u2o2"]]
    assert said(testbed, "circuits", "clear")["removed"]
    assert said(testbed, "circuits", "list")["circuits"] == []
    said(testbed, "circuits", "reset")
    assert said(testbed, "circuits", "list")["circuits"] == configured
    assert said(testbed, "circuits", "reset") is None
    assert "no optical port u1o9" in refused(testbed, "circuits", "set", "u1o9-u2o1")


def transceivers_that_fail_to_lock_are_dark_for_as_long_as_is_said(testbed: Testbed) -> None:
    for _ in range(3):
        said(testbed, "circuits", "set", "u1o1-u3o1", "u2o1-u3o2")
        said(testbed, "circuits", "reset")
        assert said(testbed, "circuits", "list")["down"] == [], "one that locks late is no failure"
    history = said(testbed, "circuits", "history")
    made = [event for event in history if event["added"]]
    for event in made:
        assert event["asked_ms"] == max(event["circuits_ms"].values())
        assert event["asked_ms"] >= 50 or "u1o1" not in event["ports"], "what u1o1 takes at least"
        assert event["measured_ms"] - event["resolution_ms"] <= event["asked_ms"] <= event["measured_ms"]
    failed = Counter[str]()
    for event in made:
        failed.update(event["failed_locks"])
    assert failed, "of some twenty, with a probability of 0.4"
    assert said(testbed, "status")["failed_locks"] == failed
    text = command("testbed.status", "--name", testbed.name).stdout
    assert f"locks       {failed.total()} attempts failed: " in text


def units_without_a_circuit_reach_each_other_over_the_core(testbed: Testbed, folder: Path) -> None:
    assert (
        "core        electrical, u1c u2c u3c u4c: 0.05 Gb/s"
        in command("testbed.status", "--name", testbed.name).stdout
    )
    assert "need 1 optical ports of u4; it has 0" in refused(testbed, "circuits", "request", "u1-u4")
    for pair in (("u1h1", "u4h1"), ("u4h2", "u3h1"), ("u1h1", "u2h1")):
        assert answers(testbed, *pair)
    said(testbed, "circuits", "clear")
    assert answers(testbed, "u1h1", "u2h1"), "over the core, too"
    said(testbed, "link", "set", "u2c", "--down")
    assert not answers(testbed, "u1h1", "u2h1")
    said(testbed, "circuits", "set", "u1o1-u2o2")
    assert answers(testbed, "u1h1", "u2h1"), "a circuit comes before the core"
    said(testbed, "link", "set", "u2c", "--up")
    said(testbed, "circuits", "reset")
    before = {link["name"]: link["bytes"] for link in said(testbed, "status")["links"]}
    with a_job(testbed, folder, "u1:1,u3:1,u4:2"):
        (job,) = said(testbed, "status")["jobs"]
        assert {"u1c", "u4c"} <= set(job["uses"]["links"])
    (folder / "over").unlink()
    result = json.loads((folder / "result.json").read_text())
    assert result["sync"] == "inc"
    carried = {link["name"]: link["bytes_up"] + link["bytes_down"] for link in result["links"]}
    assert carried["u4c"] > 0
    after = {link["name"]: link["bytes"] for link in said(testbed, "status")["links"]}
    assert after["u4c"] > before["u4c"]


def a_job_keeps_its_circuits_and_follows_its_links(testbed: Testbed, folder: Path) -> None:
    with a_job(testbed, folder, "u1:2,u2:2"):
        status = said(testbed, "status")
        (job,) = status["jobs"]
        used = job["uses"]["circuits"]
        assert used
        assert {"u1h1", "u1h2", "u2h1", "u2h2"} <= set(job["uses"]["links"])
        assert {"u1", "u2"} <= set(job["uses"]["places"])
        by_circuit = {tuple(each["circuit"]): each["jobs"] for each in status["circuit_jobs"]}
        assert sorted(list(pair) for pair, jobs in by_circuit.items() if jobs) == used
        text = refused(testbed, "circuits", "clear")
        assert f"job {job['id']} loses {used[0][0]}-{used[0][1]}" in text
        assert "--force takes them" in text
        assert all(pair in said(testbed, "circuits", "list")["circuits"] for pair in used)
        kept = said(testbed, "circuits", "list")["circuits"]
        said(testbed, "circuits", "clear", "--force")
        assert said(testbed, "circuits", "list")["circuits"] == []
        said(testbed, "circuits", "set", *("-".join(pair) for pair in kept))
        said(testbed, "link", "set", "u1h1", "--rate", "50")
        said(testbed, "link", "set", "u1h1", "--down")
        said(testbed, "link", "set", "u1h1", "--up")
    result = json.loads((folder / "result.json").read_text())
    (note,) = [each["text"] for each in result["verdict"]["notes"] if each["name"] == "links_changed"]
    assert re.search(r"u1h1 was down for [0-9.]+ s; u1h1 had 100, then 50 Mb/s$", note), note
    assert next(link for link in result["links"] if link["name"] == "u1h1")["rate_mbps"] == 50


def a_script_is_carried_out_and_a_capture_comes_on_stdout(testbed: Testbed, folder: Path) -> None:
    steps = folder / "steps.yaml"
    steps.write_text(
        "- {at: 0.1, do: link set u1h1 --rate 40}\n- {at: 0.3, do: [link set u1h2 --down, link list]}\n"
        "- {at: 0.5, do: link reset all}\n- {at: 0.6, do: circuits set u1o1-u9o9}\n"
    )
    record = folder / "record.json"
    ended = command("testbed.script", "--name", testbed.name, "--json", str(record), str(steps))
    assert ended.returncode == 1
    assert "1 of 5 steps failed, the first of them 'circuits set u1o1-u9o9'" in ended.stderr
    done = json.loads(record.read_text())["steps"]
    assert [each["exit_code"] for each in done] == [0, 0, 0, 0, 2]
    assert all(each["began_s"] >= each["at_s"] for each in done)
    assert re.search(r"^u1h1 +40 Mb/s \(configured 100\)$", done[2]["output"], re.MULTILINE)
    assert re.search(r"^u1h2 +100 Mb/s, down$", done[2]["output"], re.MULTILINE)
    links = said(testbed, "link", "list")
    assert all(link["up"] and link["rate_mbps"] == link["configured_mbps"] for link in links)
    reading = start("testbed.capture", "u1h1", "--name", testbed.name, "--output", "-", "--count", "2")
    with bounded(reading):
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert "u1h1: to -" in reading.stderr.readline()
        assert answers(testbed, "u1h1", "u1h2")
        wait_for(lambda: answers(testbed, "u1h1", "u1h2") and reading.poll() is not None, "two frames")
        pcap = reading.stdout.buffer.read()  # type: ignore[attr-defined]
    assert (reading.returncode, pcap[:4].hex(), len(pcap)) == (0, "4d3cb2a1", 24 + 2 * (16 + 98))
