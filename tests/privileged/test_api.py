"""The class `testbed.Testbed` on the real kernel: a testbed for as long as a block lasts, the same answers
as the commands', the notebook, and nothing left, however a script ends.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from testbed import JobError, JobResult, Testbed, TestbedError
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, bounded, command, environment, fresh_name, wait_for

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs")
HERE = Path(__file__).resolve().parent
LONG = str(HERE / "jobs" / "long.py")
NOBODY = 65534
CONFIG: dict[str, Any] = {
    "units": [{"hosts": 2, "optical_ports": 2}, {"hosts": 2, "optical_ports": 2}, {"hosts": 1}],
    "scale": 1,
    "host_rate_mbps": 100,
    "optical_rate_mbps": 100,
}
SMALL = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 100}


@pytest.fixture(scope="module")
def shared() -> Iterator[Testbed]:
    with Testbed(CONFIG, name=fresh_name()) as testbed:
        yield testbed
    assert not Runtime.of(testbed.name).folder.exists()


def printed(testbed: Testbed, module: str, *words: str) -> Any:
    """Return what a command says of it as JSON."""
    ended = command(f"testbed.{module}", *words, "--name", testbed.name, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


# ------------------------------------------------------------------ one that is up


def test_a_job_and_its_result(shared: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTINC_RUNS", str(tmp_path))
    shown = io.StringIO()
    result = shared.run(LONG, 1, place="u1:2,u2:2", show=shown)
    assert isinstance(result, JobResult)
    assert (result.hosts, result.failure) == (("u1h1", "u1h2", "u2h1", "u2h2"), None)
    assert "[u1h1] first sum" in shown.getvalue().splitlines()
    (right,) = {line for _, line in result.output if line.startswith("right: ")}
    turns = int(right.removeprefix("right: "))
    assert result.tensor_bytes["packets"] >= 4 * turns * 20_011 * 4
    assert result.iteration_ms is not None
    assert result.bound is not None
    assert 0 < len(result.iteration_ms) < turns
    assert result.iteration_ms[-result.bound.rounds :].mean() == pytest.approx(
        result.bound.measured_ms, abs=1e-3
    )
    assert result.link_bytes == sum(link["bytes"] for link in result.data["links"])
    assert result.samples is not None
    sent = result.samples.link["u1h1"]["bytes_up"].sum()
    assert sent == result.links.bytes_up[result.links.link == "u1h1"].sum()
    assert result.verdict.line.startswith("verdict: ")
    assert result.record is not None
    listed = command("testbed.runs", "list", "--json", env={"OPTINC_RUNS": str(tmp_path)})
    (record,) = json.loads(listed.stdout)
    assert (record["name"], record["state"]) == (result.record.name, "done")
    assert shared.run(LONG, 0.1, place="u1:2", record=False, preload=True).record is None
    assert [path.name for path in tmp_path.iterdir()] == [result.record.name]


def test_a_job_that_fails_has_a_result(shared: Testbed) -> None:
    with pytest.raises(JobError, match=r"^job \d+ failed: not done after 0.5 s") as failed:
        shared.run(LONG, 60, place="u1:2", timeout_s=0.5, preload=True)
    assert failed.value.result.verdict.reasons[0].name == "failed"


def test_who_interrupts_a_job_can_run_the_next_at_once(shared: Testbed) -> None:
    class Interrupting(io.StringIO):
        """A stream at which a user presses Ctrl-C when the job has summed."""

        def write(self, text: str) -> int:
            if "first sum" in text:
                raise KeyboardInterrupt
            return len(text)

    with pytest.raises(KeyboardInterrupt):
        shared.run(LONG, 120, place="u1:2,u2:2", show=Interrupting(), preload=True)
    assert shared.status()["jobs"] == []
    assert shared.run(LONG, 0.1, place="u1:2,u2:2", preload=True).failure is None


def test_circuits_links_faults_and_counters_are_the_commands(shared: Testbed, tmp_path: Path) -> None:
    configured = shared.circuits.now()
    assert configured == printed(shared, "circuits", "list")
    change = shared.circuits.set("u1o1-u2o2")
    assert change["event"] is not None
    assert change["event"]["added"] == [["u1o1", "u2o2"]]
    assert shared.circuits.now()["circuits"] == [["u1o1", "u2o2"]]
    assert shared.circuits.request(("u1", "u2"))["lost"] == []
    shared.circuits.reset()
    assert shared.circuits.now() == configured
    assert shared.circuits.history() == printed(shared, "circuits", "history")

    (link,) = shared.links.set("u1h1", rate_mbps=50)
    assert (link["rate_mbps"], link["configured_mbps"]) == (50, 100)
    faults = shared.faults.set("u1h1", loss="0.5%", direction="up")
    assert [(fault["direction"], fault["loss"]) for fault in faults] == [("up", 0.005)]
    assert printed(shared, "fault", "list") == faults
    assert shared.faults.clear() == []
    (done,) = shared.script([{"at": 0, "do": "link reset all"}])
    assert (done["command"], done["exit_code"]) == ("link reset all", 0)
    assert all(each["rate_mbps"] == 100 for each in shared.links.now())

    telemetry = shared.telemetry()
    said = {link["name"]: link for link in printed(shared, "status")["links"]}
    assert telemetry.links.link.tolist() == list(said)
    assert telemetry.links.bytes_up.tolist() == [each["bytes_up"] for each in said.values()]
    frames = shared.capture("u1h1", tmp_path / "u1h1.pcap", count=1, seconds=0.1)
    assert Path(frames["file"]).stat().st_size >= 24


def test_links_change_while_another_thread_waits_for_a_job(shared: Testbed, tmp_path: Path) -> None:
    over = tmp_path / "over"
    shown = io.StringIO()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(shared.run, LONG, over, place="u1:2", timeout_s=CALL_S, show=shown, preload=True)
        wait_for(lambda: "first sum" in shown.getvalue() or job.done(), "the job's first sum")
        shared.links.set("u1h1", rate_mbps=20)
        over.touch()
        result = job.result(CALL_S)
    shared.links.reset("u1h1")
    assert [note.text for note in result.verdict.notes if note.name == "links_changed"]


def test_a_command_in_a_host(shared: Testbed) -> None:
    ended = shared.exec("u1h1", "sh", "-c", "hostname -I; echo told >&2; exit 5")
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (5, ["10.0.1.1"], "told\n")
    with pytest.raises(TestbedError, match=r"nonesuch: No such file"):
        shared.exec("u1h1", "nonesuch")
    with pytest.raises(TestbedError, match=r"^u1h2: sleep had not ended after 2 s, and was ended$"):
        shared.exec("u1h2", "sleep", "1013", timeout_s=2)
    wait_for(lambda: not shared.exec("u1h1", "pgrep", "-fx", "sleep 1013").stdout, "the command has ended")


def test_queued_jobs(shared: Testbed, tmp_path: Path) -> None:
    job = {"name": "a", "script": LONG, "arguments": ["0.1"], "iterations": 1, "megabytes": 0.1, "workers": 2}
    batch = shared.submit({"policy": "inc-fcfs", "slot_s": 0.1, "jobs": [job]})
    assert (batch.done, batch.failed, batch.jobs[0].name) == (1, 0, "a")
    assert batch.jobs[0].verdict is not None
    (number,) = shared.queue({"policy": "inc-fcfs", "jobs": [{**job, "arguments": [str(tmp_path / "over")]}]})
    assert number in {queued["id"] for queued in shared.status()["schedule"]["jobs"]}
    assert shared.cancel(number) == (number,)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda testbed: testbed.run("nonesuch.py"), "script nonesuch.py: .*: No such file"),
        (lambda testbed: testbed.run(LONG, place="u9:2"), "u9:2: no such unit"),
        (lambda testbed: testbed.circuits.set("u1o1-u9o9"), "no optical port u9o9"),
        (lambda testbed: testbed.circuits.request("u1"), "demand u1: a pair of units"),
        (lambda testbed: testbed.links.set("u9h1", up=False), "link u9h1: there is none"),
        (lambda testbed: testbed.faults.set("u1h1", loss=0.1), "loss 0.1: a percentage"),
        (lambda testbed: testbed.submit({"jobs": []}), "^jobs"),
        (lambda testbed: testbed.exec("u9h1", "true"), "u9h1: no such host"),
        (lambda testbed: testbed.capture("u1h1", "/nonesuch/x.pcap"), "/nonesuch/x.pcap"),
        (lambda testbed: Testbed(SMALL, name=testbed.name).up(), "is running already"),
    ],
)
def test_what_is_refused_in_one_line(shared: Testbed, ask: Callable[[Testbed], Any], says: str) -> None:
    with pytest.raises(RequestError, match=says) as error:
        ask(shared)
    assert "\n" not in str(error.value)


def test_a_step_that_fails_is_an_error(shared: Testbed) -> None:
    with pytest.raises(TestbedError, match=r"1 of 1 steps failed.*link u9h1: there is none"):
        shared.script([{"at": 0, "do": "link set u9h1 --down"}])


def test_connecting_leaves_it_up(shared: Testbed) -> None:
    with Testbed.connect(shared.name) as other:
        assert other.status()["pid"] == shared.status()["pid"]
    assert Runtime.of(shared.name).alive()
    Testbed(SMALL, name=shared.name).down()  # which it is not
    assert Runtime.of(shared.name).alive()


def test_an_ordinary_user(shared: Testbed) -> None:
    code = (
        "import sys\nfrom testbed import Testbed, TestbedError\n"
        "for ask in (Testbed('rack', name='test-nobody').up, lambda: Testbed.connect(sys.argv[1])):\n"
        "    try:\n        ask()\n    except TestbedError as error:\n"
        "        print(type(error).__name__, error.exit_code, error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, shared.name],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    first, second = ended.stdout.splitlines()
    assert first.startswith("HostError 3 needs root"), ended.stderr
    assert second.startswith("OwnerError 3 ")
    assert "belongs to another user" in second


@pytest.mark.slow
def test_the_notebook_runs(shared: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    notebook = nbformat.read(ROOT / "docs" / "library.ipynb", as_version=4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source += f"\nname = {shared.name!r}"
    where = {"metadata": {"path": str(ROOT / "docs")}}
    done = NotebookClient(notebook, timeout=int(CALL_S), kernel_name="python3", resources=where).execute()
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert any("verdict: " in output.get("text", "") for output in outputs)


# ------------------------------------------------------------------ however it ends


WITH = f"""
import sys
from testbed import Testbed
print("begins", flush=True)
with Testbed({SMALL!r}, name=sys.argv[1]) as testbed:
    testbed.run({LONG!r}, 300, show=sys.stdout)
"""


def begun(name: str) -> subprocess.Popen[str]:
    """Start a script that brings a testbed up and has a job run on it, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", WITH, name],
        cwd=ROOT,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_script_that_is_ended_leaves_nothing(number: signal.Signals) -> None:
    name = fresh_name()
    with begun(name) as script, bounded(script):
        assert script.stdout is not None
        wait_for(lambda: "first sum" in script.stdout.readline(), "the job's first sum")  # type: ignore[union-attr]
        os.killpg(script.pid, number)  # as a terminal's Ctrl-C does
        _, complaints = script.communicate(timeout=CALL_S)
    assert script.returncode == -number
    if number == signal.SIGINT:
        assert complaints.rstrip().endswith("KeyboardInterrupt")
        assert not Runtime.of(name).alive(), "the block waits until it has ended"
    wait_for(lambda: not Runtime.of(name).folder.exists(), "the testbed's end")


@pytest.mark.usefixtures("nothing_left")
def test_a_script_that_is_interrupted_while_it_comes_up_leaves_nothing() -> None:
    name = fresh_name()
    with begun(name) as script, bounded(script):
        wait_for(Runtime.of(name).alive, "the testbed's begin")
        os.killpg(script.pid, signal.SIGINT)
        _, complaints = script.communicate(timeout=CALL_S)
    assert complaints.rstrip().endswith("KeyboardInterrupt")
    assert not Runtime.of(name).folder.exists()


def test_a_process_that_is_not_there_is_none_to_end_with() -> None:
    ended = command("testbed.up", "--name", fresh_name(), "--ends-with", "2147483646")
    assert ended.stderr == "testbed up: --ends-with 2147483646: there is no such process\n"
    assert ended.returncode == 2
