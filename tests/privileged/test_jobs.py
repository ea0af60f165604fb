"""Jobs over a whole testbed: as whom they run, what they are told, how they end, what is said of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import (
    WAIT_S,
    Testbed,
    command,
    pid_of,
    pids_in_testbed,
    running,
    start,
    wait_for,
)
from tests.processes import alive

pytestmark = [pytest.mark.needs("xdp", "ovs")]

NOBODY = 65534
AS_NOBODY = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
SCRIPTS = {
    "who": """
import os, socket
from workloads.job_env import JobEnv
job = JobEnv.from_environ()
print(job.rank, job.host, os.getuid(), os.getgid(), os.environ["HOME"], socket.gethostbyname(job.host))
job.write_stats({"rank": job.rank})
""",
    "allreduce": """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.full((1000,), float(2 ** dist.get_rank()))
dist.all_reduce(t)
print("sum", t.unique().tolist())
dist.destroy_process_group()
""",
    "fail": """
import os, sys, time
from workloads.job_env import JobEnv
job = JobEnv.from_environ()
if job.rank == 1:
    sys.exit(5)
while not job.board.missing():
    time.sleep(0.01)
print("misses", *job.board.missing(), sep=" / ")
sys.exit(6)
""",
    "wait": """
import time
print("waiting", flush=True)
time.sleep(600)
""",
    "leave": """
import os, subprocess, sys
script = "import time; print('left', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print("done")
""",
    "root": "open('/proc/1/environ').read()",
}


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as made:
        yield made


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts, readable for every user, which pytest's own folders are not."""
    path = tmp_path_factory.mktemp("jobs")
    for parent in (path, path.parent, path.parent.parent):
        parent.chmod(0o755)
    for name, text in SCRIPTS.items():
        (path / f"{name}.py").write_text(text)
    (path / "out").mkdir()
    os.chown(path / "out", NOBODY, NOBODY)
    return path


def result_of(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def test_a_job_as_the_calling_user(testbed: Testbed, folder: Path) -> None:
    out = folder / "out"
    argv = ["testbed.run", "--name", testbed.name, "--sync", "ring", "--place", "u1:2,u3:1"]
    argv += ["--json", str(out / "r.json"), "--logs", str(out / "logs"), str(folder / "who.py")]
    done = command(*argv, env=AS_NOBODY)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{host}] {rank} {host} {NOBODY} {NOBODY} /nonexistent {ip}"
        for rank, (host, ip) in enumerate([("u1h1", "10.0.1.1"), ("u1h2", "10.0.1.2"), ("u3h1", "10.0.3.1")])
    ]
    result = result_of(out / "r.json")
    assert (result["sync"], result["placement"], result["failure"]) == ("ring", ["u1", "u1", "u3"], None)
    assert [(worker["host"], worker["exit_code"], worker["stats"]) for worker in result["workers"]] == [
        ("u1h1", 0, {"rank": 0}),
        ("u1h2", 0, {"rank": 1}),
        ("u3h1", 0, {"rank": 2}),
    ]
    assert len(result["links"]) == 20
    for path in (out / "r.json", out / "logs", *(out / "logs").iterdir()):
        assert path.stat().st_uid == NOBODY, path
    assert (out / "logs" / "worker-2.log").read_text().startswith("2 u3h1")


def test_each_worker_starts_in_a_folder_of_its_own(testbed: Testbed, folder: Path) -> None:
    out = folder / "out"
    (out / "here.py").write_text(
        "import os\nopen('mine', 'x').write(os.environ['RANK'])\nprint(os.getcwd())\n"
    )
    argv = ["testbed.run", "--name", testbed.name, "--sync", "ring", "--place", "u1:2"]
    argv += ["--folder-per-worker", "here.py"]
    done = command(*argv, env=AS_NOBODY, cwd=out)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[u1h{1 + rank}] {out}/worker-{rank}" for rank in (0, 1)]
    for rank in (0, 1):
        mine = out / f"worker-{rank}"
        assert (mine / "mine").read_text() == str(rank)
        assert {path.stat().st_uid for path in (mine, mine / "mine")} == {NOBODY}
    os.chown(out / "worker-1", 0, 0)
    refused = command(*argv, env=AS_NOBODY, cwd=out)
    assert refused.returncode == 2
    why = f"folder {out}/worker-1: user nobody cannot write there: Permission denied"
    assert f"testbed run: {why}\n" in refused.stderr


def test_gradients_cross_the_fabric(testbed: Testbed, folder: Path) -> None:
    out = folder / "r.json"
    argv = ["--sync", "ring", "--place", "u1:1,u2:1", "--json", str(out), str(folder / "allreduce.py")]
    done = command("testbed.run", "--name", testbed.name, *argv)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[u1h1] sum [3.0]", "[u2h1] sum [3.0]"]
    links = {link["name"]: link for link in result_of(out)["links"]}
    assert links["u1h1"]["bytes"] > 4000
    assert links["u2h1"]["bytes"] > 4000
    assert sum(link["bytes"] for name, link in links.items() if "o" in name) > 8000
    assert links["u1h3"]["bytes"] == 0
    assert {link["rate_mbps"] for link in links.values()} == {200.0}


def test_a_user_has_no_rights_of_root(testbed: Testbed, folder: Path) -> None:
    argv = ["--sync", "ring", "--place", "u1:1", str(folder / "root.py")]
    done = command("testbed.run", "--name", testbed.name, *argv, env=AS_NOBODY)
    assert done.returncode == 1
    assert "PermissionError" in done.stdout


def test_circuits_are_asked_for_before_the_job_and_told_after(testbed: Testbed, folder: Path) -> None:
    out = folder / "r.json"
    script = str(folder / "who.py")
    argv = ["--place", "u1:2,u2:2", "--json", str(out), script]
    done = command("testbed.run", "--name", testbed.name, *argv)
    assert done.returncode == 0, done.stderr
    result = result_of(out)
    assert result["sync"] == "inc"
    assert result["ps_host"] == "u3h1"
    answer: dict[str, Any] = {}

    def the_controller_answers() -> bool:
        answer.update(json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout))
        return bool(answer["controller"]["ready"])

    wait_for(the_controller_answers, "the controller answers in its time")
    joined = {frozenset((a[:2], b[:2])) for a, b in answer["circuits"]}
    assert {frozenset(("u1", "u3")), frozenset(("u2", "u3"))} <= joined
    for event in result["ocs"]["events"]:
        assert event["measured_ms"] >= event["asked_ms"]


def test_a_failing_worker_is_named_and_the_others_can_say_so(testbed: Testbed, folder: Path) -> None:
    out = folder / "r.json"
    argv = ["--sync", "ring", "--place", "u1:3", "--json", str(out), str(folder / "fail.py")]
    done = command("testbed.run", "--name", testbed.name, *argv)
    assert done.returncode == 1
    assert "failed: worker 1 on u1h2 exited with code 5" in done.stderr.splitlines()[-1]
    lines = sorted(done.stdout.splitlines())
    assert [line[:6] for line in lines] == ["[u1h1]", "[u1h3]"]
    assert all(" / worker 1 on u1h2 exited with code 5" in line for line in lines)
    assert [worker["exit_code"] for worker in result_of(out)["workers"]] == [6, 5, 6]


def test_ctrl_c_ends_all_workers(testbed: Testbed, folder: Path) -> None:
    client = start("testbed.run", "--name", testbed.name, "--sync", "ring", str(folder / "wait.py"))
    assert client.stdout
    for _ in range(4):
        assert client.stdout.readline().endswith("waiting\n")
    jobs = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)["jobs"]
    assert [job["state"] for job in jobs] == ["running"]
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=WAIT_S)
    assert client.returncode == 130
    assert "interrupted, its workers were ended" in errors
    assert jobs_of(testbed) == []


def test_a_client_that_is_killed_takes_its_job_along(testbed: Testbed, folder: Path) -> None:
    client = start(
        "testbed.run", "--name", testbed.name, "--sync", "ring", "--place", "u1:1", str(folder / "wait.py")
    )
    assert client.stdout
    assert client.stdout.readline() == "[u1h1] waiting\n"
    client.kill()
    client.communicate(timeout=CALL_S)
    wait_for(lambda: jobs_of(testbed) == [], "the job ends")


def test_hosts_of_a_running_job_are_not_given_to_another(testbed: Testbed, folder: Path) -> None:
    first = start(
        "testbed.run", "--name", testbed.name, "--sync", "ring", "--place", "u1:3", str(folder / "wait.py")
    )
    assert first.stdout
    assert first.stdout.readline().endswith("waiting\n")
    run = ["testbed.run", "--name", testbed.name, "--sync", "ring", "--place"]
    refused = command(*run, "u1:2", str(folder / "who.py"))
    assert refused.returncode == 2
    assert "u1 has 4 hosts, 3 of them in use; 1 can be placed there" in refused.stderr
    other = command(*run, "u1:1", str(folder / "who.py"))
    assert other.returncode == 0, other.stderr
    assert other.stdout.startswith("[u1h4] 0 u1h4")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=WAIT_S)
    assert jobs_of(testbed) == []


def test_a_process_that_left_its_session_does_not_outlive_the_job(testbed: Testbed, folder: Path) -> None:
    before = set(pids_in_testbed(testbed.pid))
    argv = ["--sync", "ring", "--place", "u1:2", str(folder / "leave.py")]
    done = command("testbed.run", "--name", testbed.name, *argv)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[u1h1] done", "[u1h2] done"])
    # what it left would go on for minutes; what the daemon itself starts now and then, does not
    wait_for(
        lambda: not [pid for pid in set(pids_in_testbed(testbed.pid)) - before if alive(pid)],
        "nothing is left",
    )


def test_the_death_of_the_parameter_server_is_said_as_such(testbed: Testbed, folder: Path) -> None:
    argv = ["--sync", "ps", "--place", "u1:1", str(folder / "wait.py")]
    client = start("testbed.run", "--name", testbed.name, *argv)
    assert client.stdout
    first = sorted(client.stdout.readline() for _ in range(2))
    assert first[0] == "[u1h1] waiting\n"
    assert first[1].startswith("[u3h1 ps] parameter server of job")
    os.kill(pid_of(testbed.pid, "workloads.parameter_server"), signal.SIGKILL)
    _, errors = client.communicate(timeout=WAIT_S)
    assert client.returncode == 1
    assert "failed: the parameter server on u3h1 was ended by SIGKILL" in errors


def test_timeout(testbed: Testbed, folder: Path) -> None:
    argv = ["--sync", "ring", "--place", "u1:1", "--timeout", "0.5", str(folder / "wait.py")]
    done = command("testbed.run", "--name", testbed.name, *argv)
    assert done.returncode == 1
    assert "not done after 0.5 s" in done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--place", "u9:1", "who.py"], "u9:1: no such unit; accepted are u1 (4 hosts)"),
        (["--place", "u1:5", "who.py"], "u1 has 4 hosts; 4 can be placed there"),
        (
            ["--sync", "none", "who.py"],
            "accepted are auto, aleph, aleph-mwcha, aleph-servers, inc, luwu, ps, ring, switches",
        ),
        (["missing.py"], "cannot read it: No such file"),
        (["secret.py"], "user nobody cannot read it: Permission denied"),
        (["--json", "/etc/result.json", "who.py"], "--json /etc/result.json: user nobody cannot write it"),
        (["--logs", "/etc/logs", "who.py"], "--logs /etc/logs: user nobody cannot make it"),
    ],
)
def test_a_wrong_request_is_one_line(testbed: Testbed, folder: Path, argv: list[str], says: str) -> None:
    (folder / "secret.py").touch(0o600)
    *options, script = argv
    done = command("testbed.run", "--name", testbed.name, *options, str(folder / script), env=AS_NOBODY)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert says in done.stderr
    assert done.stdout == ""


def jobs_of(testbed: Testbed) -> list[dict[str, Any]]:
    return list(json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)["jobs"])
