"""Jobs with an optimizer node, live: over three levels of switches and under faults, with a worker or the
node killed and started again. What comes out is the same to the bit.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.privileged.commands import (
    ROOT,
    Testbed,
    bounded,
    command,
    open_folder,
    pid_of,
    pids_in_testbed,
    running,
    start,
    wait_for,
)

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch"), pytest.mark.timeout(300)]

# workers, their racks' ToRs and the pod's switch, those of another unit, and above them the node's switch
PLACE = "u1r1:1,u1r2:1,u2:2"
WORKERS = 4
FABRIC = {
    "units": [{"hosts": 1, "racks": 2}, {"hosts": 3}, {"kind": "optimizer", "hosts": 1}],
    "host_rate_mbps": 10_000,
    "optical_rate_mbps": 10_000,
    "optical_ports": 2,
    "scale": 100,
}
FAULTS = ("--loss", "1%", "--duplicate", "1%", "--reorder", "1%")
SCRIPT = str(ROOT / "workloads" / "luwu" / "jobs" / "text.py")
STEPS = 8
MODEL = ("--layers", "2", "--width", "32", "--length", "32", "--batch", "4")
CLIPPED, WITHIN = ("--clip", "1"), ("--update", "backward")
Numbers = dict[tuple[str, ...], str]  # of all parameters, by options of a job


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


def words(
    testbed: Testbed, states: Path, *more: str, steps: int = STEPS, is_forked: bool = True
) -> list[str]:
    """The words of a job whose states are in this folder, which is made."""
    states.mkdir(exist_ok=True)
    options = ["--name", testbed.name, "--sync", "luwu", "--place", PLACE, "--timeout", "200"]
    options += ["--preload"] if is_forked else []
    return ["testbed.run", *options, SCRIPT, "--states", str(states), "--steps", str(steps), *MODEL, *more]


def trained(
    testbed: Testbed, states: Path, *more: str, steps: int = STEPS, options: tuple[str, ...] = ()
) -> str:
    """Return the number of all parameters that all workers have after a job."""
    module, *rest = words(testbed, states, *more, steps=steps)
    done = command(module, *options, *rest, timeout_s=250)
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = re.findall(r"parameters ([0-9a-f]{16})$", done.stdout, re.MULTILINE)
    assert len(numbers) == WORKERS, done.stdout
    assert len(set(numbers)) == 1, numbers
    return str(numbers[0])


@pytest.fixture(scope="module")
def undisturbed(testbed: Testbed, folder: Path) -> Numbers:
    """The numbers of jobs whose gradients are clipped, and of those that update within the backward pass, of
    which this one does not.
    """
    return {
        CLIPPED: trained(testbed, folder / "clipped", *CLIPPED),
        WITHIN: trained(testbed, folder / "plain", "--update", "step"),
    }


def test_a_user_sees_how_far_a_job_is(testbed: Testbed, folder: Path, undisturbed: Numbers) -> None:
    """While it trains in `status`, then in a picture; the transport in the training process, and with two
    disks of a declared rate: the parameters are the same.
    """
    states, second, picture = folder / "host", folder / "second", folder / "iterations.png"
    second.mkdir()
    declared = ("--rates", "reads=2e9,write_states=2e9", "--scale", "1000", "--gantt", str(picture))
    module, *rest = words(testbed, states, *CLIPPED, "--nic", "host", *declared)
    rest.insert(rest.index(str(states)) + 1, str(second))
    with bounded(start(module, *rest, together=True), 200) as job:
        assert job.stdout is not None
        said, pages = [], []
        for each in job.stdout:
            said.append(each)
            if "[u1r1h1] iteration" in each and not pages:
                pages.append(command("testbed.status", "--name", testbed.name, "--json").stdout)
                pages.append(command("testbed.status", "--name", testbed.name).stdout)
        assert job.wait(timeout=60) == 0, "".join(said)
    assert (
        re.findall(r"parameters ([0-9a-f]{16})$", "".join(said), re.MULTILINE)
        == [undisturbed[CLIPPED]] * WORKERS
    )
    assert re.search(r"\d+ tokens/s, \d+% waiting", "".join(said))
    (shown,) = json.loads(pages[0])["jobs"]
    service = shown["service"]
    assert 0 <= service["iteration"] <= STEPS
    assert [disk["folder"] for disk in service["disks"]] == [str(states), str(second)]
    assert service["streams"]["parameters"]["credit"] > 0
    assert f"disk {second}: reads" in pages[1]
    assert re.search(r"iteration \d+ whole; now \w+", pages[1])
    assert picture.read_bytes()[1:4] == b"PNG"
    spans = json.loads(picture.with_suffix(".json").read_text())
    assert {span["iteration"] for span in spans} >= set(range(1, STEPS + 1))


def test_parameters_are_the_same_under_faults(testbed: Testbed, folder: Path, undisturbed: Numbers) -> None:
    """Layers updated as their gradients come, too; and no end gets a packet that it has no room for."""
    file = folder / "faults.json"
    set_ = command("testbed.fault", "set", "--name", testbed.name, *FAULTS, "all")
    assert set_.returncode == 0, set_.stderr
    try:
        number = trained(testbed, folder / "faults", *WITHIN, options=("--json", str(file)))
    finally:
        cleared = command("testbed.fault", "clear", "--name", testbed.name)
        assert cleared.returncode == 0, cleared.stderr
    assert number == undisturbed[WITHIN]
    nics = [worker["stats"]["nic"] for worker in json.loads(file.read_text())["workers"]]
    assert [(nic["dropped"], nic["gotten"]["overflowed"]) for nic in nics] == [(0, 0)] * WORKERS
    assert sum(nic["given"]["again"] for nic in nics) > 0, "what was lost was sent again"


def test_an_end_that_stands_still_loses_nothing(testbed: Testbed, folder: Path, undisturbed: Numbers) -> None:
    """The NIC of one worker is stopped for half a second: the others wait for its credit."""
    file, states = folder / "still.json", folder / "still"
    module, *rest = words(testbed, states, *WITHIN)
    with bounded(start(module, "--json", str(file), *rest, together=True), 200) as job:
        assert job.stdout is not None
        said: list[str] = []
        for each in job.stdout:
            said.append(each)
            if "iteration 3:" in each and not any("iteration 3:" in before for before in said[:-1]):
                nic = pid_of(testbed.pid, "workloads.luwu.nic")
                os.kill(nic, signal.SIGSTOP)
                time.sleep(0.5)
                os.kill(nic, signal.SIGCONT)
        assert job.wait(timeout=60) == 0, "".join(said)
    assert (
        re.findall(r"parameters ([0-9a-f]{16})$", "".join(said), re.MULTILINE)
        == [undisturbed[WITHIN]] * WORKERS
    )
    nics = [worker["stats"]["nic"] for worker in json.loads(file.read_text())["workers"]]
    assert [(nic["dropped"], nic["gotten"]["overflowed"]) for nic in nics] == [(0, 0)] * WORKERS


def optimizer_node(testbed: Testbed) -> int:
    return pid_of(testbed.pid, "workloads.luwu.service")


def second_worker(testbed: Testbed) -> int:
    """The training process of worker 1: its NIC's has another command line."""
    for pid in pids_in_testbed(testbed.pid):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"RANK=1" in environ and SCRIPT.encode() in line:
            return pid
    raise AssertionError("worker 1 does not run")


@pytest.mark.parametrize(
    ("victim", "options", "line"),
    [
        (optimizer_node, WITHIN, "the optimizer node on u3h1 was ended by SIGKILL"),
        (second_worker, CLIPPED, "worker 1 on u1r2h1 was ended by SIGKILL"),
    ],
)
def test_a_job_goes_on_where_its_states_are(
    testbed: Testbed,
    folder: Path,
    undisturbed: Numbers,
    victim: Callable[[Testbed], int],
    options: tuple[str, ...],
    line: str,
) -> None:
    """All of it ends with the one that is killed, maybe with some layers updated, and another job resumes:
    the same parameters.
    """
    states = folder / victim.__name__
    with bounded(
        start(*words(testbed, states, *options, steps=1000, is_forked=False), together=True), 200
    ) as job:
        assert job.stdout is not None
        said: list[str] = []
        for each in job.stdout:
            said.append(each)
            if "iteration 3:" in each:
                os.kill(victim(testbed), signal.SIGKILL)
                break
        said += job.stdout.readlines()
        assert job.wait(timeout=60) != 0, "".join(said)
    assert any(line in each for each in said), "".join(said)
    wait_for(lambda: not [each for each in _processes(testbed) if "workloads.luwu" in each], "all have ended")
    whole = max(int(number) for number in re.findall(r"iteration (\d+):", "".join(said)))
    assert whole < STEPS
    # one more may be whole on the disks that no worker has heard of
    probe = command(*words(testbed, states, *options, "--resume", steps=0), timeout_s=250)
    assert probe.returncode == 0, probe.stdout + probe.stderr
    first = int(re.findall(r"from iteration (\d+)", probe.stdout)[0])
    assert first in (whole, whole + 1)
    assert trained(testbed, states, *options, "--resume", steps=STEPS - first) == undisturbed[options]


def _processes(testbed: Testbed) -> list[str]:
    lines = []
    for pid in pids_in_testbed(testbed.pid):
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return lines


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--recovery", "integrity"), "--recovery integrity: luwu sends by acknowledgements and credit"),
        (("--age-out", "5"), "--age-out 5.0: luwu sends by acknowledgements and credit"),
        (("--window", "5"), "--window 5: luwu sends by acknowledgements and credit"),
    ],
)
def test_what_its_ends_do_by_themselves_is_refused(
    testbed: Testbed, folder: Path, more: tuple[str, ...], line: str
) -> None:
    module, *rest = words(testbed, folder / "refused")
    done = command(module, *more, *rest)
    assert done.returncode == 2, done.stdout + done.stderr
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_states_that_are_there_are_not_written_over(
    testbed: Testbed, folder: Path, undisturbed: Numbers
) -> None:
    done = command(*words(testbed, folder / "plain"), timeout_s=250)
    assert done.returncode != 0
    assert "resume" in done.stdout + done.stderr
