"""Jobs that switches sum by block records, live: over three levels and under faults, with a worker that comes
late and with timers that do not wait for it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.wire.stragglers import SlowWorkers
from tests.privileged.commands import ROOT, Testbed, command, open_folder, running

pytestmark = [pytest.mark.needs("xdp", "ovs")]

# workers, their racks' ToRs, the pod's switch, and above it that of a unit with more of them
PLACE = "u1r1:1,u1r2:1,u2:3"
WORKERS = 5
FABRIC = {
    "units": [{"hosts": 1, "racks": 2}, {"hosts": 3}],
    "host_rate_mbps": 10_000,
    "optical_rate_mbps": 10_000,
    "scale": 100,
}
FAULTS = ("--loss", "1%", "--duplicate", "1%", "--reorder", "1%")
LINKS = ("u1r1h1", "u1r2h1", "u1r1", "u1r2", "u1o1", "u2h1", "u2h2", "u2h3")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


@pytest.fixture(scope="module")
def testbed(folder: Path) -> Iterator[Testbed]:
    config = folder / "levels.yaml"
    config.write_text(json.dumps(FABRIC))
    with running(str(config)) as testbed:
        yield testbed


def ran(
    testbed: Testbed, folder: Path, asleep_s: float, *words: str, place: str = PLACE, workers: int = WORKERS
) -> tuple[dict[str, Any], list[Any]]:
    """Return a job's result, and what its workers said."""
    file = folder / "result.json"
    script = str(ROOT / "tests" / "privileged" / "jobs" / "straggles.py")
    options = (
        "--sync",
        "trio",
        "--preload",
        "--place",
        place,
        "--json",
        str(file),
        "--timeout",
        "120",
        *words,
    )
    done = command("testbed.run", "--name", testbed.name, *options, script, str(asleep_s))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("said: ")[2] for line in done.stdout.splitlines() if "said: " in line]
    said = sorted((json.loads(line) for line in lines), key=lambda each: int(each["rank"]))
    assert [each["rank"] for each in said] == list(range(workers)), done.stdout
    return json.loads(file.read_text()), said


def test_sums_over_three_levels_are_exact_under_faults(testbed: Testbed, folder: Path) -> None:
    """Every sum waits for everybody, as with slots, where there are no timers."""
    set_ = command("testbed.fault", "set", "--name", testbed.name, *FAULTS, *LINKS)
    assert set_.returncode == 0, set_.stderr
    try:
        result, said = ran(testbed, folder, 0.0, "--age-out", "0")
    finally:
        cleared = command("testbed.fault", "clear", "--name", testbed.name)
        assert cleared.returncode == 0, cleared.stderr
    assert [(each["wrong"], each["lacking"]) for each in said] == [(0, 0)] * WORKERS
    assert {each["digest"] for each in said} == {said[0]["digest"]}
    (tree,) = result["sums"]
    assert [below["place"] for below in tree["below"]] == ["u1"]
    assert {below["place"] for below in tree["below"][0]["below"]} == {"u1r1", "u1r2"}
    assert result["blocks"]["without"] == {}
    assert result["blocks"]["active"] == 0, "no block record is left without a result"


def test_nobody_waits_for_a_straggler(testbed: Testbed, folder: Path) -> None:
    """It sleeps for fifty timeouts, and has the same results as all others when it comes."""
    result, said = ran(testbed, folder, 0.5)
    assert [each["wrong"] for each in said] == [0] * WORKERS, "each is a mean over those who contributed"
    assert {each["digest"] for each in said} == {said[0]["digest"]}
    assert all(each["lacking"] >= 2 for each in said), "some sums lack the one that slept"
    assert result["blocks"]["without"].get(str(WORKERS - 1), 0) > 0
    assert result["blocks"]["active"] == 0, "no block record is left without a result"
    assert any("sent without worker" in note for note in result["notes"])


def test_a_permanent_straggler_leaves_and_all_end_with_the_same_parameters(
    testbed: Testbed, folder: Path
) -> None:
    """One of three sleeps for 150 timeouts. It is missed for two looks, of 10 timeouts each; from then on the
    others' iterations take no timeouts, and it is back when it has caught up. Links lose packets meanwhile.
    """
    file, script = folder / "left.json", str(ROOT / "tests" / "privileged" / "jobs" / "leaves.py")
    options = ("--sync", "trio", "--preload", "--place", "u2:3", "--leave-after", "2", "--json", str(file))
    set_ = command("testbed.fault", "set", "--name", testbed.name, "--loss", "0.1%", "u2h1", "u2h3")
    assert set_.returncode == 0, set_.stderr
    try:
        done = command(
            "testbed.run", "--name", testbed.name, *options, "--timeout", "60", script, "1.5", "500"
        )
    finally:
        cleared = command("testbed.fault", "clear", "--name", testbed.name)
        assert cleared.returncode == 0, cleared.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("said: ")[2] for line in done.stdout.splitlines() if "said: " in line]
    said = sorted((json.loads(line) for line in lines), key=lambda each: int(each["rank"]))
    assert len({each["digest"] for each in said}) == 1, "parameters are equal to the last bit"

    def median_s(since_s: float, until_s: float) -> float:
        taken = [took for began, took in said[0]["iterations"] if since_s <= began < until_s]
        assert taken, (since_s, until_s)
        return float(statistics.median(taken))

    asleep, gone = median_s(0.0, 0.15), median_s(0.8, 1.45)
    assert asleep > gone + 0.015, "while it is waited for, a vote and blocks of each sum take a timeout"
    assert gone < median_s(-10.0, 0.0) + 0.01, "then iterations take what they did before"
    result = json.loads(file.read_text())
    (absence,) = result["blocks"]["left"]
    assert (absence["who"], absence["workers"], absence["at"], absence["events"]) == (
        "worker 2",
        [2],
        "u2",
        2,
    )
    assert absence["back_s"] is not None, "it was in sums again"
    assert absence["blocks"] > 500
    assert result["blocks"]["active"] == 0, "no block record is left without a result"
    assert "worker 2 left u2 after 2 looks in vain" in done.stderr + done.stdout


def test_who_left_is_waited_for_before_its_results_are_gone(testbed: Testbed, folder: Path) -> None:
    """Results are kept for 16 windows of 2 blocks, which an iteration of 28 has in one; the only worker of a
    rack sleeps, so that the rack leaves the pod's switch.
    """
    file, script = folder / "held.json", str(ROOT / "tests" / "privileged" / "jobs" / "leaves.py")
    options = ("--sync", "trio", "--preload", "--place", "u2:2,u1r1:1", "--leave-after", "1", "--window", "2")
    words = (*options, "--json", str(file), "--timeout", "60", script, "1", "40")
    done = command("testbed.run", "--name", testbed.name, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [json.loads(line.partition("said: ")[2]) for line in done.stdout.splitlines() if "said: " in line]
    assert len({each["digest"] for each in said}) == 1, "parameters are equal to the last bit"
    first = min(said, key=lambda each: int(each["rank"]))
    assert max(took for _, took in first["iterations"]) > 0.5, "the others waited for it"
    (absence, *_) = json.loads(file.read_text())["blocks"]["left"]
    assert absence["workers"] == [2]


def test_without_recovery_a_sleeper_causes_no_packets_and_a_lost_one_stops_the_job(
    testbed: Testbed, folder: Path
) -> None:
    """Section 6.1's baseline; with retransmission the same sleep costs some."""
    script = str(ROOT / "tests" / "privileged" / "jobs" / "straggles.py")
    file = folder / "none.json"
    options = ("--sync", "switches", "--preload", "--place", "u2:3", "--json", str(file))
    again = {}
    for recovery in ("window", "none"):
        words = (*options, "--recovery", recovery, "--timeout", "60", script, "0.5")
        done = command("testbed.run", "--name", testbed.name, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        workers = json.loads(file.read_text())["workers"]
        again[recovery] = sum(worker["stats"]["retransmits"] for worker in workers)
    assert again["none"] == 0 < again["window"]
    set_ = command("testbed.fault", "set", "--name", testbed.name, "--loss", "50%", "u2h1")
    assert set_.returncode == 0, set_.stderr
    try:
        words = (*options, "--recovery", "none", "--timeout", "5", script, "0")
        done = command("testbed.run", "--name", testbed.name, *words)
    finally:
        cleared = command("testbed.fault", "clear", "--name", testbed.name)
        assert cleared.returncode == 0, cleared.stderr
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not done after 5 s" in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--sync", "trio", "--age-out", "0.5"), "--age-out: 0.5; 1 to 100 ms are accepted"),
        (("--sync", "trio", "--window", "9000"), "a window of 9000 blocks; 1 to "),
        (("--sync", "trio", "--recovery", "integrity"), "trio sums by block records"),
        (("--sync", "trio", "--leave-after", "0"), "--leave-after: 0; a whole number from 1 to 1000"),
        (("--sync", "trio", "--leave-after", "3", "--age-out", "0"), "sums wait for every worker as long as"),
        (("--sync", "trio", "--leave-after", "3", "--window", "964"), "a window of 964 blocks; 1 to 963 are"),
        (("--sync", "inc", "--leave-after", "3"), "--leave-after 3: inc does not sum by block records"),
        (("--sync", "inc", "--age-out", "5"), "--age-out 5: inc does not sum by block records"),
        (("--sync", "inc", "--window", "5"), "--window 5: inc does not sum by block records"),
    ],
)
def test_what_cannot_be_is_one_line(testbed: Testbed, words: tuple[str, ...], line: str) -> None:
    script = str(ROOT / "tests" / "privileged" / "jobs" / "straggles.py")
    done = command("testbed.run", "--name", testbed.name, "--place", "u2:2", *words, script, "0")
    assert done.returncode == 2, done.stdout + done.stderr
    (said,) = [each for each in done.stderr.splitlines() if "testbed run: " in each and line in each]
    assert line in said


def test_a_worker_that_is_slow_on_purpose_is_left_out_of_averages(testbed: Testbed, folder: Path) -> None:
    """One of three sleeps once, as its seed says: for seconds, since nobody waits for others here longer than
    10 ms, and a busy machine may keep two of them back for some hundred. It sleeps in the third iteration:
    before the second DDP lays out its buckets anew, for which all wait for all. The script knows averages of
    some workers, and the verdict does not take the others' pace for links that let pass too much.
    """
    file, script = folder / "slow.json", str(ROOT / "workloads" / "jobs" / "layers.py")
    pattern = SlowWorkers.parse("p=0.02,seed=31,iteration=2s")
    factors = {
        (rank, iteration): factor
        for rank in range(3)
        for iteration in range(4)
        for point in range(3)
        if (factor := pattern.factor(rank, 3, iteration, point))
    }
    (((slow, iteration), factor),) = factors.items()
    assert iteration >= 2
    options = (
        "--sync",
        "trio",
        "--preload",
        "--place",
        "u2:3",
        "--json",
        str(file),
        "--stragglers",
        str(pattern),
    )
    words = ("--profile", "a100", "--batch", "16", "--scale", "2000", "--iterations", "4")
    done = command("testbed.run", "--name", testbed.name, *options, script, *words, "--degraded")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text())
    assert [worker["delays"] for worker in result["stragglers"]["workers"]] == [
        int(rank == slow) for rank in range(3)
    ]
    assert result["stragglers"]["seconds"] >= 2 * factor
    assert result["blocks"]["without"].get(str(slow), 0) > 0
    assert result["blocks"]["active"] == 0, "no block record is left without a result"
    assert "beyond_links" not in [reason["name"] for reason in result["verdict"]["reasons"]]
