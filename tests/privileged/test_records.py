"""Records of commands over a testbed, behind sudo: whole, the user's, and there whatever ends the command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from testbed.client.output import UNREAD
from testbed.records import Record, list_records
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, Testbed, bounded, command, open_folder, running, start, wait_for

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch"), pytest.mark.timeout(420)]
OWNER = 54321
SCRIPT = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("inc")
print("met", flush=True)
more = torch.ones(1)
while more.item():  # until the file is there that is named
    more[0] = not os.path.exists(sys.argv[1])
    dist.all_reduce(more)
dist.destroy_process_group()
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A testbed, and a user's folder with the script, the steps and the records in it."""

    testbed: Testbed
    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"SUDO_UID": str(OWNER), "OPTINC_RUNS": str(self.folder / "runs")}

    def words(self, *more: str, until: str) -> list[str]:
        script = [str(self.folder / "meets.py"), str(self.folder / until)]
        return ["testbed.run", "--name", self.testbed.name, "--place", "u1:2", *more, *script]

    def records(self, kind: str) -> list[Record]:
        return [each for each in list_records(self.folder / "runs") if each.command == kind]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with open_folder() as folder, running("rack") as testbed:
        (folder / "meets.py").write_text(SCRIPT)
        (folder / "steps.yaml").write_text(
            "- {at: 0, do: link set u1h1 --rate 100}\n- {at: 0, do: link reset u1h1}\n"
        )
        job = {"name": "a", "script": str(folder / "meets.py"), "arguments": ["/"], "workers": 2}
        (folder / "jobs.yaml").write_text(
            yaml.safe_dump({"jobs": [{**job, "iterations": 1, "megabytes": 0.1}]})
        )
        os.chown(folder, OWNER, -1)
        yield Place(testbed, folder)


RESUMES = """
import os, sys
import torch
import torch.distributed as dist

done = int(open("done.txt").read()) if os.path.exists("done.txt") else 0
dist.init_process_group("inc")
dist.all_reduce(torch.ones(3))
if dist.get_rank() == 0 and sys.argv[1] == "resumes":
    with open("done.txt", "w") as file:
        file.write(str(done + 1))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["resumes", "anew"])
def test_a_repeated_run_says_which_files_the_run_before_left_otherwise(place: Place, how: str) -> None:
    work = place.folder / how
    work.mkdir()
    work.chmod(0o777)
    (work / "train.py").write_text(RESUMES)
    words = ["--name", place.testbed.name, "--place", "u1:2", "--repeat", "3", "--preload"]
    ran = command(
        "testbed.run",
        *[*words, "--logs", "logs", "--json", "result.json", "train.py", how],
        env={**place.environ, "PYTHONPATH": str(ROOT), "OPTINC_RUNS": str(place.folder / f"runs-{how}")},
        cwd=work,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads((work / "result.json").read_text())
    noted = [[line for line in run["notes"] if "other files" in line] for run in result["runs"]]
    said = [line for line in ran.stderr.splitlines() if "other files" in line]
    if how == "anew":
        assert (noted, said) == ([[], [], []], [])
        return
    assert [len(lines) for lines in noted] == [0, 1, 1]
    assert len(said) == 1, "once, while it is the same"
    assert said[0].startswith(
        "testbed run: note: run 2: it begins with other files than the first run: done.txt (new); a script"
    )
    (record,) = list_records(place.folder / f"runs-{how}")
    second = record.runs[1].result
    assert second is not None
    assert noted[1][0] in second["notes"]


def test_a_repeated_run_with_a_script_beside_it(place: Place) -> None:
    with bounded(start(*place.words("--repeat", "2", until="go"), env=place.environ, together=True)) as run:
        assert run.stdout
        next(line for line in run.stdout if "met" in line)
        script = command(
            "testbed.script",
            "--name",
            place.testbed.name,
            str(place.folder / "steps.yaml"),
            env=place.environ,
        )
        assert script.returncode == 0, script.stderr
        (place.folder / "go").touch()
        said, _ = run.communicate(timeout=CALL_S)
    assert run.returncode == 0, said
    assert "means of 2 runs, ± 95 % confidence:" in said
    (made,) = place.records("run")
    assert f"recorded as {made.name}" in said
    assert (made.state, made.exit_code, made.notes) == ("done", 0, ())
    assert made.configuration is not None
    assert made.configuration["name"] == "rack"
    assert made.set_up.seeds["ocs"] == 1
    for run_of_it in made.runs:
        assert run_of_it.result is not None
        assert run_of_it.verdict == run_of_it.result["verdict"]["line"]
        assert run_of_it.telemetry is not None
        with np.load(run_of_it.telemetry) as samples:
            assert samples["sent"].shape[2] == 2
        assert "met\n" in run_of_it.logs[0].read_text()
    first, second = made.runs
    assert [step.command for step in first.steps] == ["link set u1h1 --rate 100", "link reset u1h1"]
    assert second.steps == ()
    below = list((place.folder / "runs").rglob("*"))
    assert {path.lstat().st_uid for path in (place.folder / "runs", *below)} == {OWNER}


def test_a_detached_queue_is_recorded_by_the_testbed(place: Place) -> None:
    done = command(
        "testbed.submit",
        "--name",
        place.testbed.name,
        "--detach",
        str(place.folder / "jobs.yaml"),
        env=place.environ,
    )
    assert done.returncode == 0, done.stderr
    wait_for(lambda: place.records("submit")[0].state != "queued", "the testbed writes the result")
    (made,) = place.records("submit")
    assert (made.state, made.failure) == ("done", None)
    assert [log.parent.name for log in made.runs[0].logs if log.name == "worker-0.log"] == ["a"]
    assert {path.lstat().st_uid for path in made.folder.rglob("*")} == {OWNER}


@pytest.mark.parametrize("refused", ["place", "folder", "policy", "policy, detached"])
def test_what_the_testbed_refuses_leaves_no_folder(place: Place, refused: str) -> None:
    (place.folder / "worker-1").write_text("a file, where a worker's folder would be")
    (place.folder / "none.py").write_text("raise ValueError('no policy')")
    script, jobs = str(place.folder / "meets.py"), str(place.folder / "jobs.yaml")
    command_, *more = {
        "place": ["run", "--place", "u9:2", script],
        "folder": ["run", "--place", "u1:2", "--folder-per-worker", script],
        "policy": ["submit", "--policy", "none.py:Policy", jobs],
        "policy, detached": ["submit", "--policy", "none.py:Policy", "--detach", jobs],
    }[refused]
    before = sorted((place.folder / "runs").glob("*"))
    named = ("--name", place.testbed.name)
    done = command(f"testbed.{command_}", *named, *more, env=place.environ, cwd=place.folder)
    assert done.returncode == 2, done.stderr
    assert "recorded as" not in done.stderr
    assert sorted((place.folder / "runs").glob("*")) == before


def test_a_reader_that_goes_ends_the_job_in_order(place: Place) -> None:
    """`testbed run | head -1`: the reader closes the pipe while the workers go on printing."""
    before = len(place.records("run"))
    script = place.folder / "prints.py"
    script.write_text("import time\nfor at in range(6000):\n    print(at, flush=True)\n    time.sleep(0.1)\n")
    words = place.words("--sync", "ring", until="never")[:-2]
    process = start(*words, str(script), env=place.environ)
    with bounded(process):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("[u1h")
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(timeout=CALL_S) == UNREAD
    assert "Broken pipe" not in said
    assert "Traceback" not in said
    made = place.records("run")[before]
    assert (made.state, made.exit_code) == ("interrupted", UNREAD)
    assert made.failure == "the reader of the output of testbed run has gone"
    assert made.runs[0].result is not None
    assert made.runs[0].logs
    status = command("testbed.status", "--name", place.testbed.name, "--json")
    assert json.loads(status.stdout)["jobs"] == []


def test_kill_9_and_ctrl_c_of_the_command(place: Place) -> None:
    for number, state in ((signal.SIGINT, "interrupted"), (signal.SIGKILL, "killed")):
        with bounded(start(*place.words(until="never"), env=place.environ, together=True)) as run:
            assert run.stdout
            next(line for line in run.stdout if "met" in line)
            run.send_signal(number)
            run.communicate(timeout=CALL_S)
        made = place.records("run")[-1]
        assert made.state == state
        assert (made.runs[0].result is not None) == (state == "interrupted")
        assert bool(made.runs[0].logs) == (state == "interrupted")
