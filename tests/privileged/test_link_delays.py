"""Links that delay, by the kernel's netem or by the testbed's own thread where it has none: frame by frame on
a single wire.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.privileged.commands import command, running, wait_for
from tests.privileged.fault_wire import findings

pytestmark = [pytest.mark.needs("namespaces", "xdp"), pytest.mark.usefixtures("nothing_left")]
EARLY_MS = 0.1  # by which a frame may arrive before its time: the clock is read after it was sent


def has_netem() -> bool:
    tried = json.loads(command("testbed.doctor", "--json").stdout)["features"]
    return bool(next(feature for feature in tried if feature["name"] == "netem")["works"])


@pytest.mark.parametrize(
    "of_frames",
    [{}, {"mtu": 9000}, {"tag": 5}, {"tag": 0xFFFF}],
    ids=["plain", "bridged", "tagged", "tag 65535"],
)
def test_each_frame_arrives_once_in_order_and_no_earlier(of_frames: dict[str, int]) -> None:
    outcome = findings("delayed", delay_ms=20.0, jitter_ms=0.0, count=500, **of_frames)
    assert outcome["wrong"] == 0
    assert [number for number, _ in outcome["came"]] == list(range(1, 501))
    assert min(took_ms for _, took_ms in outcome["came"]) >= 20 - EARLY_MS
    typical = sorted(took_ms for _, took_ms in outcome["came"])[250]
    assert typical < 40, "it delays once"


def test_frames_overtake_each_other_by_jitter() -> None:
    outcome = findings("delayed", delay_ms=20.0, jitter_ms=10.0, count=1000)
    assert outcome["wrong"] == 0
    assert sorted(number for number, _ in outcome["came"]) == list(range(1, 1001))
    times_ms = sorted(took_ms for _, took_ms in outcome["came"])
    assert times_ms[0] >= 10 - EARLY_MS
    assert times_ms[0] < 12, "of 1,000 drawn from 10 to 30"
    assert times_ms[-1] >= 28
    assert sum(later < earlier for (earlier, _), (later, _) in pairwise(outcome["came"])) > 100


def test_a_fault_comes_before_the_delay() -> None:
    fault = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.1, "distance": 3}
    outcome = findings("delayed", delay_ms=20.0, jitter_ms=0.0, count=1000, fault=fault)
    counters = outcome["counters"]
    assert outcome["wrong"] == 0
    lost = counters["lost"] + counters["held"] - counters["released"]
    assert len(outcome["came"]) == 1000 - lost + counters["duplicated"]
    assert min(counters["lost"], counters["duplicated"], counters["released"]) > 30
    assert min(took_ms for _, took_ms in outcome["came"]) >= 20 - EARLY_MS, "copies are delayed, too"


def test_no_packet_is_lost_when_a_delay_begins_or_ends() -> None:
    """netem loses the packets that wait in it then (docs/faults.md)."""
    outcome = findings("toggled", count=6000)
    assert outcome["came"] + outcome["drops"] == 6000
    if not has_netem():
        assert outcome["came"] == 6000


def test_frames_without_room_are_counted() -> None:
    outcome = findings("delayed_in_excess", count=500)
    assert outcome["came"] + outcome["lost"] == 500
    assert outcome["lost"] > 300, "room for 120 kB, and 20 kB of queue behind it"


def test_a_delay_begins_changes_and_ends_under_tcp() -> None:
    outcome = findings("delayed_tcp", size=20_000_000)
    assert outcome == {"same": True, "bytes": 20_000_000, "left": 0}


START = """\
units:
  - {hosts: [{name: web, exec: "python3 -m http.server 80"}, {exec: "echo over; exit 3"}]}
  - {hosts: 1}
links: {u1o1: {rate_mbps: 10000, delay: 15ms}, u1h2: {loss: 100%}}
"""


@pytest.mark.needs("ovs")
def test_links_delay_and_hosts_run_commands_from_the_start(tmp_path: Path) -> None:
    configuration = tmp_path / "start.yaml"
    configuration.write_text(START)
    with running(str(configuration)) as testbed:

        def in_host(host: str, *words: str) -> str:
            return command("testbed.exec", "--name", testbed.name, host, "--", *words).stdout

        def hosts() -> list[dict[str, Any]]:
            answer = command("testbed.status", "--name", testbed.name, "--json").stdout
            return list(json.loads(answer)["hosts"])

        times = in_host("u2h1", "ping", "-c", "3", "-q", "web")
        assert 30 <= float(times.rpartition("= ")[2].partition("/")[0]) < 60, "there and back"
        assert "100% packet loss" in in_host("u2h1", "ping", "-c", "2", "-i", "0.2", "-W", "1", "u1h2")
        wait_for(lambda: hosts()[1]["exec"]["state"] != "running", "u1h2's command ends")
        assert [host["exec"] and host["exec"]["state"] for host in hosts()] == [
            "running", "exited with code 3", None,
        ]  # fmt: skip
        assert "10.0.1.1/" in in_host("web", "ip", "address", "show", "eth0")
        fetched = "import urllib.request as r; print(r.urlopen('http://web/', timeout=20).status)"
        wait_for(lambda: "200" in in_host("u2h1", "python3", "-c", fetched), "web serves")
        log = Path(json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)["log"])
        assert (log / "exec-u1h2.log").read_text() == "over\n"
        command("testbed.link", "set", "u1o1", "--delay", "1ms", "--name", testbed.name)
        reset = command("testbed.link", "reset", "u1o1", "--name", testbed.name).stdout
        assert "delays 15 ms each way" in reset
