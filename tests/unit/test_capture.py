"""The links that can be captured on, and the requests that are refused before a socket is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.capture import too_late
from testbed.client.caller import Caller
from testbed.client.requests import CaptureRequest
from testbed.daemon.capture import answer
from testbed.emulation import capture
from testbed.errors import RequestError
from testbed.jobs.user_files import UserFiles
from testbed.topology import catalogue
from testbed.topology.load import parse
from tests.processes import spawn


def tap(link: str) -> capture.Tap:
    return capture.Tap(capture.link(SHAPED, link))


SHAPED = catalogue.ready("default")
UNSHAPED = parse({"units": [{"hosts": 2}], "host_rate_mbps": "unshaped"}, "test")


def test_links_are_named_as_in_status() -> None:
    assert capture.link(SHAPED, "u2h4").a.namespace == "u2h4"
    assert capture.link(SHAPED, "u1o2").b.device == "x-u1o2"


def test_a_name_that_is_none_is_told_the_others() -> None:
    with pytest.raises(RequestError, match=r"^link u9h1: there is none; links are u1h1, .*u1o1"):
        capture.link(SHAPED, "u9h1")
    many = parse({"units": [{"hosts": 100}], "host_rate_mbps": 10, "scale": 1}, "test")
    with pytest.raises(RequestError) as error:
        capture.link(many, "u1o1")
    assert str(error.value).endswith("u1h12, ..., u1h100")


def test_a_link_without_a_rate_is_refused() -> None:
    with pytest.raises(RequestError, match="link u1h1: it has no rate"):
        capture.link(UNSHAPED, "u1h1")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": 0}, "--count 0: 1 to"),
        ({"count": 1_000_001}, "--count 1000001: 1 to"),
        ({"seconds": 0}, "--seconds 0: more than 0"),
        ({"seconds": float("nan")}, "--seconds nan: more than 0"),
        ({"seconds": 1e9}, "--seconds 1000000000.0: more than 0"),
        ({"count": "1"}, "--count 1: 1 to"),
        ({"seconds": None}, "--seconds None: more than 0"),
        ({"output": "x.pcap"}, "--output: x.pcap; an absolute path is accepted"),
    ],
)
def test_bounds_and_users(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    request = {
        "link": "u1h1",
        "output": str(tmp_path / "x.pcap"),
        "count": 1,
        "seconds": 1.0,
    }
    with pytest.raises(RequestError, match=says):
        answer(
            tap,
            Caller.of(65534),
            CaptureRequest(**{**request, **change}),
            print,
            lambda: False,
            UserFiles(spawn),
        )
    assert not (tmp_path / "x.pcap").exists()


def test_a_capture_that_its_usual_duration_ended_says_so() -> None:
    ended = {"link": "u1h1", "file": "x.pcap", "from": "u1h1", "to": "it", "missed": 0}
    few = {**ended, "forward": 3, "backward": 2, "seconds": 10.0}
    assert too_late(few, 6, 10.0) == "; 6 frames were wanted, and 10 s were over: --seconds allows more"
    assert too_late(few, 5, 10.0) == ""
    assert too_late(few, None, 10.0) == ""
    assert too_late({**few, "seconds": 4.2}, 6, 10.0) == ""  # Ctrl-C
