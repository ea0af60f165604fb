"""Queued jobs on a real testbed: modes, circuits and rates as decided; what ends early frees what it held;
policies that misbehave.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.client import rpc
from testbed.client.runtime import Runtime
from tests.privileged.commands import (
    ROOT,
    WAIT_S,
    Testbed,
    command,
    pids_in_testbed,
    running,
    start,
    wait_for,
)
from tests.processes import alive

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]

NOBODY = 65534
AS_NOBODY = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
SUMS = str(ROOT / "tests" / "privileged" / "jobs" / "sums.py")
PORT_MBPS = 40.0
SLOW = """
units: [{hosts: 4}, {hosts: 2}, {kind: cpu, hosts: 2}, {kind: cpu, hosts: 2}]
host_rate_mbps: 8000
scale: 200
inc: {jobs: 1}
"""
POLICIES = """
import time
from pathlib import Path
from testbed.systems.p4inc.policies.catalogue import make
from testbed.scheduling.model import Decision, Rotation, RotationTurn, pair

class Halves:
    "Every job at half a port; with INC in the unit u2; two circuits between u1 and u3."
    name = "halves"
    def decide(self, state):
        assert state.limits.port_gbps == 8.0
        inc = {p.job.id: 1 for p in state.jobs if p.job.workers[0][0] == 1}
        return Decision({p.job.id: 4.0 for p in state.jobs}, inc, {(0, 2): 2})

class Turns:
    "All jobs at half a port; the circuits of each two units take turns."
    name = "turns"
    def decide(self, state):
        turns = tuple(RotationTurn({pair: 1}, 100.0) for pair in ((0, 1), (0, 2), (1, 2)))
        return Decision({p.job.id: 4.0 for p in state.jobs}, rotation=Rotation(turns, 1.0))

class Moody:
    "FCFS, which raises while there is a file `raise`, and has no decision while there is a file `hang`."
    name = "moody"
    def __init__(self):
        self.policy = make("inc-fcfs", 1)
    def decide(self, state):
        here = Path(__file__).parent
        if (here / "raise").exists():
            raise RuntimeError("out of ideas")
        while (here / "hang").exists():
            time.sleep(0.02)
        return self.policy.decide(state)
"""
SCRIPTS = {
    "fails": "dist.all_reduce(torch.ones(3)); sys.exit(5 if dist.get_rank() else 0)",
    "waits": "time.sleep(600)",
    "leaves": (
        "dist.all_reduce(torch.ones(3))\nif dist.get_rank(): sys.exit(0)\ndist.all_reduce(torch.ones(3))"
    ),
    "again": (
        "dist.all_reduce(torch.ones(3))\n"
        "sys.exit(5 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and dist.get_rank() else 0)"
    ),
}


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    config = tmp_path_factory.mktemp("config") / "slow.yaml"
    config.write_text(SLOW)
    with running(str(config)) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_stays_queued(testbed: Testbed) -> Iterator[None]:
    """A test that fails leaves no jobs for those after it."""
    yield
    if not nothing_is_held(testbed):
        command("testbed.cancel", "--name", testbed.name, "--all")
        wait_for(lambda: nothing_is_held(testbed), "all is free")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scripts and policies, readable for every user, which pytest's own folders are not."""
    path = tmp_path_factory.mktemp("submit")
    for parent in (path, path.parent, path.parent.parent):
        parent.chmod(0o755)
    (path / "policies.py").write_text(POLICIES)
    for name, text in SCRIPTS.items():
        head = (
            'import os, sys, time\nimport torch, torch.distributed as dist\ndist.init_process_group("inc")\n'
        )
        (path / f"{name}.py").write_text(f"{head}{text}\n")
    (path / "out").mkdir()
    os.chown(path / "out", NOBODY, NOBODY)
    return path


def job(
    name: str, place: str, megabytes: float = 0.25, times: int = 20, until: Path | None = None, **other: Any
) -> dict[str, Any]:
    """Sums so many times, and then stays `until` there is a file."""
    arguments = [megabytes, times, *([str(until)] if until else [])]
    return {
        **{"name": name, "place": place, "script": SUMS, "arguments": arguments},
        **{"iterations": times, "megabytes": megabytes},
        **other,
    }


def jobs_file(folder: Path, *jobs: dict[str, Any], **top: Any) -> str:
    path = folder / "jobs.yaml"
    path.write_text(yaml.safe_dump({"slot_s": 0.5, **top, "jobs": list(jobs)}))
    return str(path)


def status(testbed: Testbed) -> dict[str, Any]:
    """Return the answer that `testbed status --json` prints, without a new Python for each time that a test
    looks.
    """
    return dict(rpc.call(Runtime.of(testbed.name).socket, "status"))


def states(testbed: Testbed) -> dict[str, str]:
    schedule = status(testbed)["schedule"]
    return {job["name"]: job["state"] for job in schedule["jobs"]} if schedule else {}


def complaints(testbed: Testbed) -> str:
    return "\n".join(status(testbed)["schedule"]["complaints"])


def rates(answer: dict[str, Any]) -> dict[str, float]:
    return {link["name"]: link["rate_mbps"] for link in answer["links"]}


def nothing_is_held(testbed: Testbed) -> bool:
    answer = status(testbed)
    free = all(host["job"] is None for host in answer["hosts"])
    return answer["schedule"] is None and free and set(rates(answer).values()) == {PORT_MBPS}


def test_a_rotation_s_matchings_both_carry_a_job_whose_sums_are_exact(testbed: Testbed, folder: Path) -> None:
    """Its workers reach their server in turns: without either of them it would have no sum."""
    here = Runtime.of(testbed.name).controller_socket
    before = rpc.call(here, "circuits")
    assert "schedule" not in before
    crossed = rpc.call(here, "crossings")
    out, leave = folder / "out" / "result.json", folder / "leave"
    across = job("across", "u1:1,u2:1", 0.05, 4, until=leave, ps="u3")
    path = jobs_file(folder, across, policy=f"{folder / 'policies.py'}:Turns")
    argv = ["--name", testbed.name, "--detach", "--json", str(out), path]
    done = command("testbed.submit", *argv, env=AS_NOBODY)
    assert done.returncode == 0, done.stderr

    def has_summed() -> bool:
        assert not out.exists(), out.read_text()
        shown = status(testbed)["schedule"]
        return [entry["progress"] for entry in shown["jobs"]] == [1.0] if shown else False

    wait_for(has_summed, "all sums are there")
    kept = rpc.call(here, "circuits")["schedule"]
    assert (kept["period_ms"], kept["guard_ms"]) == (300.0, 1.0)
    (workers,), (first,), (second,) = (matching["circuits"] for matching in kept["matchings"])
    assert [port[:2] for port in workers] == ["u1", "u2"]
    now = rpc.call(here, "crossings")
    for port in {*first, *second}:
        assert now[port]["lit"] - crossed[port]["lit"] > 100, f"{port} carried its share"
    leave.touch()
    wait_for(lambda: out.exists() and out.read_text().endswith("}\n"), "the result is written")
    wait_for(lambda: nothing_is_held(testbed), "all is free")
    result = json.loads(out.read_text())
    assert (result["done"], result["failed"], result["complaints"]) == (1, 0, [])
    wait_for(lambda: rpc.call(here, "circuits") == before, "circuits are as they were before")


@pytest.mark.alone
def test_modes_circuits_and_rates_are_the_decisions(testbed: Testbed, folder: Path) -> None:
    """Two jobs of u1 sum at the two hosts of u3, over two circuits; the one of u2 sums in its switch."""
    out, leave = folder / "out" / "result.json", folder / "leave"
    places = {"ps-1": ("u1:2", {"ps": "u3"}), "ps-2": ("u1:2", {"ps": "u3"}), "inc": ("u2:2", {})}
    jobs = [job(name, place, until=leave, **more) for name, (place, more) in places.items()]
    path = jobs_file(folder, *jobs, policy=f"{folder / 'policies.py'}:Halves")
    argv = [
        "--name",
        testbed.name,
        "--detach",
        "--json",
        str(out),
        "--logs",
        str(folder / "out" / "logs"),
        path,
    ]
    done = command("testbed.submit", *argv, env=AS_NOBODY)
    assert done.returncode == 0, done.stderr
    assert "queued jobs" in done.stderr
    answer: dict[str, Any] = {}

    def all_have_summed() -> bool:
        answer.update(status(testbed))
        assert not out.exists(), out.read_text()
        summed = {(job["state"], job["progress"]) for job in answer["schedule"]["jobs"]}
        return summed == {("running", 1.0)} and answer["controller"]["ready"]

    wait_for(all_have_summed, "all run, and have their sums")
    assert sorted(tuple(sorted(end[:2] for end in pair)) for pair in answer["circuits"]) == [("u1", "u3")] * 2
    assert {name: rate for name, rate in rates(answer).items() if rate != PORT_MBPS} == {
        name: PORT_MBPS / 2 for name in ("u1h1", "u1h2", "u1h3", "u1h4", "u2h1", "u2h2")
    }
    leave.touch()
    wait_for(lambda: out.exists() and out.read_text().endswith("}\n"), "the result is written")
    wait_for(lambda: nothing_is_held(testbed), "all is free")
    assert out.stat().st_uid == NOBODY
    result = json.loads(out.read_text())
    assert (result["policy"], result["done"], result["failed"]) == ("halves", 3, 0), result["complaints"]
    assert (result["reconfigured_connections"], result["reconfigurations"]) == (2, 1)
    assert {job["name"]: job["mode"] for job in result["jobs"]} == {"ps-1": "ps", "ps-2": "ps", "inc": "inc"}
    by_name = {job["name"]: job for job in result["jobs"]}
    assert sorted(by_name[name]["ps_host"] for name in ("ps-1", "ps-2")) == ["u3h1", "u3h2"]
    assert by_name["inc"]["ps_host"] is None
    for entry in result["jobs"]:
        megabits = 20 * 0.25 * 8 * 1514 / 1440
        busy_s = max(worker["stats"]["allreduce"]["busy_s"] for worker in entry["run"]["workers"])
        assert megabits / busy_s < 1.1 * PORT_MBPS / 2, f"{entry['name']} is no faster than its links"
        assert megabits / busy_s > 0.4 * PORT_MBPS / 2, (
            f"{entry['name']} has its rate, but for the processors"
        )
        assert (folder / "out" / "logs" / entry["name"] / "worker-1.log").read_text().startswith("group:")
    links = {link["name"]: link["bytes_up"] for link in by_name["ps-1"]["run"]["links"]}
    assert 0.6 < links["u1o1"] / links["u1o2"] < 1.6, (
        "each circuit carries one of the two parameter servers' gradients"
    )


def test_what_ends_early_frees_what_it_held(testbed: Testbed, folder: Path) -> None:
    """Each switch takes one job, so that one which sums there later proves that the place was free again.

    Of those that sum in one unit no two have room beside each other: each starts when the one before it has
    left.
    """
    out = folder / "result.json"
    waits = {"script": str(folder / "waits.py"), "arguments": []}
    jobs = [
        job("fails", "u1:2", script=str(folder / "fails.py"), arguments=[]),
        job("overstays", "u2:2", **waits, limit_s=1.0),
        job("cancelled", "u1:4", **waits, at_s=0.1),
        job("behind", "u1:4", **waits, at_s=0.2),
        job("leaves", "u2:2", script=str(folder / "leaves.py"), arguments=[], at_s=0.25),
        job("after-1", "u1:4", at_s=0.3, times=3),
        job("after-2", "u2:2", at_s=0.4, times=3),
    ]
    argv = [
        "--name",
        testbed.name,
        "--preload",
        "--json",
        str(out),
        jobs_file(folder, *jobs, policy="inc-fcfs"),
    ]
    client = start("testbed.submit", *argv)
    wait_for(lambda: states(testbed).get("cancelled") == "running", "it runs")
    assert states(testbed)["behind"] == "queued"
    ids = {job["name"]: job["id"] for job in status(testbed)["schedule"]["jobs"]}
    done = command("testbed.cancel", "--name", testbed.name, str(ids["behind"]), str(ids["cancelled"]))
    assert done.returncode == 0, done.stderr
    _, errors = client.communicate(timeout=WAIT_S)
    assert client.returncode == 1
    assert "3 of 7 jobs failed, the first of them job" in errors
    result = {job["name"]: job for job in json.loads(out.read_text())["jobs"]}
    assert "worker 1 on u1h2 exited with code 5" in result["fails"]["failure"]
    assert result["overstays"]["failure"] == "not done 1 s after its start"
    left = "worker 1 on u2h2 ended with 0 while others waited for it in collective 2 (log: "
    assert result["leaves"]["failure"].startswith(left)
    assert result["cancelled"]["failure"] == result["behind"]["failure"] == "testbed cancel"
    assert {name: job["mode"] for name, job in result.items() if name != "behind"} == {
        **dict.fromkeys(("fails", "cancelled", "after-1"), "inc"),  # one after the other in u1
        **dict.fromkeys(("overstays", "leaves", "after-2"), "inc"),  # and in u2
    }
    assert result["after-1"]["failure"] is result["after-2"]["failure"] is None
    wait_for(lambda: nothing_is_held(testbed), "all is free")
    done = command("testbed.cancel", "--name", testbed.name, str(ids["behind"]))
    assert done.returncode == 2
    assert f"job {ids['behind']} is not among the jobs queued here" in done.stderr


def test_systems_across_units_and_jobs_that_start_again(testbed: Testbed, folder: Path) -> None:
    """Each switch takes one job: whichever comes first, the other waits, or has its parameter server."""
    out = folder / "result.json"
    again = {"script": str(folder / "again.py"), "arguments": []}
    jobs = [
        job("across", "u1:2,u2:1", times=3, sync="switches"),
        job("around", "u1:1,u2:1", times=3, sync="ring", at_s=0.1),
        job("again", "u1:1,u3:1", restarts=1, ps="u3", at_s=0.2, **again),
    ]
    path = jobs_file(folder, *jobs, policy="inc-fcfs")
    done = command("testbed.submit", "--name", testbed.name, "--preload", "--json", str(out), path)
    assert done.returncode == 0, done.stderr
    result = {job["name"]: job for job in json.loads(out.read_text())["jobs"]}
    assert {name: (job["mode"], job["run"]["sync"]) for name, job in result.items()} == {
        "across": ("switches", "switches"),
        "around": ("ring", "ring"),
        "again": ("ps", "ps"),
    }
    assert [job["restarts"] for job in result.values()] == [0, 0, 1]
    failures = [attempt["failure"] for attempt in result["again"]["run"]["attempts"]]
    assert "worker 1 on u3h1 exited with code 5" in failures[0]
    assert failures[1:] == [None]
    assert result["again"]["run"]["notes"] == [f"{failures[0]}: restart 1 of at most 1"]
    wait_for(lambda: nothing_is_held(testbed), "all is free")


def test_a_policy_that_raises_or_overruns_costs_its_slot(testbed: Testbed, folder: Path) -> None:
    out, leave = folder / "result.json", folder / "leave"
    path = jobs_file(folder, job("a", "u1:2", until=leave), policy=f"{folder / 'policies.py'}:Moody")
    client = start("testbed.submit", "--name", testbed.name, "--preload", "--json", str(out), path)
    wait_for(lambda: states(testbed) == {"a": "running"}, "it runs")
    for mood, said in (
        ("raise", "policy moody raised RuntimeError: out of ideas"),
        ("hang", "policy moody had no decision when its time was over; the last decision stays in force"),
    ):
        (folder / mood).touch()
        wait_for(lambda said=said: said in complaints(testbed), said)
        (folder / mood).unlink()
    leave.touch()
    _, errors = client.communicate(timeout=WAIT_S)
    assert client.returncode == 0, errors
    result = json.loads(out.read_text())
    assert result["policy_failures"] >= 1
    assert result["overruns"] >= 1
    assert [rate for _, rate in result["jobs"][0]["rates"]] == [8.0], "it ran on as it did"


def test_ctrl_c_cancels_what_was_submitted_and_the_circuits_are_the_schedulers_until_then(
    testbed: Testbed, folder: Path
) -> None:
    waits = job("waits", "u1:2", script=str(folder / "waits.py"), arguments=[])
    client = start(
        "testbed.submit", "--name", testbed.name, "--preload", jobs_file(folder, waits, policy="noinc-tw")
    )
    wait_for(lambda: states(testbed) == {"waits": "running"}, "it runs")
    other = command(
        "testbed.run", "--name", testbed.name, "--place", "u1:1,u2:1", "--sync", "ring", SUMS, "0.1", "1"
    )
    assert other.returncode == 2
    assert "the circuits are the scheduler's while jobs are queued" in other.stderr
    again = command("testbed.submit", "--name", testbed.name, jobs_file(folder, waits, policy="inc-tw"))
    assert again.returncode == 2
    assert "jobs are queued with policy noinc-tw" in again.stderr
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=WAIT_S)
    assert client.returncode == 130
    assert "cancelled: SIGINT to testbed submit" in errors
    wait_for(lambda: nothing_is_held(testbed), "all is free")


def test_what_is_wrong_with_a_submission_is_said_at_once(testbed: Testbed, folder: Path) -> None:
    for top, said in (
        ({"policy": "best"}, "policy 'best': there is no such policy; there are noinc-fcfs"),
        ({"policy": "nothing.py:Here"}, "policy nothing.py:Here: FileNotFoundError"),
        ({"slot_s": 0}, "slot_s: 0; a number from 0.1 to 3600 is accepted"),
    ):
        done = command("testbed.submit", "--name", testbed.name, jobs_file(folder, job("a", "u1:2"), **top))
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    done = command("testbed.submit", "--name", testbed.name, jobs_file(folder, job("a", "u9:2")))
    assert (done.returncode, "job a: place: u9:2; there are u1 (4 hosts)" in done.stderr) == (2, True), (
        done.stderr
    )
    assert nothing_is_held(testbed)


@pytest.mark.parametrize("ended_by", ["down", "SIGKILL"])
def test_the_testbeds_end_is_its_queues_end(folder: Path, ended_by: str) -> None:
    with running() as testbed:
        waits = job("waits", "u1:1", script=str(folder / "waits.py"), arguments=[])
        jobs = [waits, {**waits, "name": "later", "at_s": 600}]
        done = command("testbed.submit", "--name", testbed.name, "--detach", jobs_file(folder, *jobs))
        assert done.returncode == 0, done.stderr
        wait_for(lambda: "running" in states(testbed).values(), "one runs")
        pids = pids_in_testbed(testbed.pid)
        if ended_by == "down":
            down = command("testbed.down", "--name", testbed.name)
            assert (down.returncode, down.stderr) == (0, ""), "it ends by itself, and is not killed"
        else:
            os.kill(testbed.pid, signal.SIGKILL)
        wait_for(lambda: not any(alive(pid) for pid in pids), "every process is gone")
        if ended_by == "SIGKILL":
            down = command("testbed.down", "--name", testbed.name)  # removes what a killed one leaves
            said = f"testbed '{testbed.name}' had died; what it left is removed\n"
            assert (down.returncode, down.stdout) == (0, said)
        assert not Runtime.of(testbed.name).folder.exists()
