"""Jobs that switches sum by block records where BMv2 is one of them: exact under faults, and with a worker at
that switch which comes late.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privileged.commands import ROOT, Testbed, command, open_folder, running
from tests.privileged.test_trio import FAULTS, ran

pytestmark = [pytest.mark.needs("xdp", "ovs", "bmv2")]

# of as many workers each, the first unit's switch makes results: BMv2's, above an XDP one
FABRIC = {
    "units": [{"hosts": 2, "engine": "bmv2"}, {"hosts": 2}],
    "host_rate_mbps": 10_000,
    "optical_rate_mbps": 10_000,
    "scale": 100,
}
PLACE = "u2:2,u1:2"
WORKERS = 4
LINKS = ("u1h1", "u1h2", "u1o1", "u2h1", "u2h2")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


@pytest.fixture(scope="module")
def testbed(folder: Path) -> Iterator[Testbed]:
    config = folder / "mixed.yaml"
    config.write_text(json.dumps(FABRIC))
    with running(str(config)) as testbed:
        yield testbed


def test_sums_are_exact_under_faults(testbed: Testbed, folder: Path) -> None:
    """Every sum waits for everybody."""
    set_ = command("testbed.fault", "set", "--name", testbed.name, *FAULTS, *LINKS)
    assert set_.returncode == 0, set_.stderr
    try:
        result, said = ran(testbed, folder, 0.0, "--age-out", "0", place=PLACE, workers=WORKERS)
    finally:
        cleared = command("testbed.fault", "clear", "--name", testbed.name)
        assert cleared.returncode == 0, cleared.stderr
    assert [(each["wrong"], each["lacking"]) for each in said] == [(0, 0)] * WORKERS
    assert {each["digest"] for each in said} == {said[0]["digest"]}
    (tree,) = result["sums"]
    assert (tree["place"], [below["place"] for below in tree["below"]]) == ("u1", ["u2"])
    assert (result["blocks"]["without"], result["blocks"]["active"]) == ({}, 0)


def test_the_switch_does_not_wait_for_a_straggler(testbed: Testbed, folder: Path) -> None:
    """It sleeps for ten timeouts, and has the same results as all others when it comes."""
    result, said = ran(testbed, folder, 0.5, "--age-out", "50", place=PLACE, workers=WORKERS)
    assert [each["wrong"] for each in said] == [0] * WORKERS, "each is a mean over those who contributed"
    assert {each["digest"] for each in said} == {said[0]["digest"]}
    assert all(each["lacking"] >= 2 for each in said), "some sums lack the one that slept"
    assert result["blocks"]["without"].get(str(WORKERS - 1), 0) > 0
    assert result["blocks"]["active"] == 0, "no block record is left without a result"


def test_a_window_beyond_its_records_is_one_line(testbed: Testbed) -> None:
    script = str(ROOT / "tests" / "privileged" / "jobs" / "straggles.py")
    words = ("--sync", "trio", "--window", "205")
    done = command("testbed.run", "--name", testbed.name, "--place", PLACE, *words, script, "0")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "a window of 205 blocks; 1 to 204 are accepted, as a place has 2048 block records" in done.stderr
