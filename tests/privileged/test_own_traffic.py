"""A job's own traffic is never called another's: by each system, across units, alone on its testbed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.plugins.registry import systems
from tests.limits import SLOWER
from tests.privileged.commands import ROOT, WAIT_S, Testbed, bounded, command, open_folder, running, start

PACED = (str(ROOT / "tests" / "privileged" / "jobs" / "paced.py"), "1", "31253", "0")
STATES = (str(ROOT / "workloads" / "luwu" / "jobs" / "text.py"), "--steps", "4", "--states")
LEAST_BYTES = 100_000
HEAD, HEAD_IP, OTHER = "u1h1", "10.0.1.1", "u1h2"
OWN_PORT, HIGH_PORT, SENT_BYTES, TCP = 5005, 50_001, 2_000_000, 6
PYTHON = ("env", "-i", sys.executable, "-c")  # whose environment does not say whose they are
LISTENS = f"""
import socket
with socket.create_server(("", {HIGH_PORT})) as listening, listening.accept()[0] as end:
    while end.recv(65536):
        pass
"""
SENDS = f"""
import socket, time
for _ in range(100):
    try:
        end = socket.create_connection(("{HEAD_IP}", {HIGH_PORT}))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
for _ in range(20):
    end.sendall(bytes({SENT_BYTES} // 20))
    time.sleep({0.15 * SLOWER})
"""
CONFIG = "units: [{hosts: 3}, {hosts: 2}, {kind: cpu, hosts: 2}]\nscale: 200\n"

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch")]


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with open_folder() as folder:
        config = folder / "own.yaml"
        config.write_text(CONFIG)
        with running(str(config)) as made:
            yield made


@pytest.mark.parametrize("sync", list(systems()))
def test_what_a_job_sends_is_its_own(sync: str, testbed: Testbed, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    script = (*STATES, str(tmp_path)) if sync == "luwu" else PACED
    words = ("--name", testbed.name, "--place", "u1:2,u2:1", "--sync", sync, "--preload", "--json", str(out))
    done = command("testbed.run", *words, *script)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert max(link["bytes_up"] for link in result["links"]) > LEAST_BYTES
    assert result["other_traffic"] == []
    names = {each["name"] for kind in ("reasons", "notes") for each in result["verdict"][kind]}
    assert not names & {"other_traffic", "traffic_unknown"}, names


@pytest.mark.parametrize("forks", [(), ("--preload",)], ids=["processes", "forks"])
def test_a_connection_of_the_scripts_own_is_the_jobs(
    testbed: Testbed, tmp_path: Path, forks: tuple[str, ...]
) -> None:
    """Its port is below those that the kernel gives. And what a command at the same hosts sends on one above
    is not the job's.
    """
    out, end = tmp_path / "result.json", tmp_path / "end"
    script = (
        str(ROOT / "tests" / "privileged" / "jobs" / "side.py"),
        HEAD_IP,
        str(OWN_PORT),
        "20000",
        str(end),
    )
    words = ("--name", testbed.name, "--place", "u1:2", "--sync", "inc", *forks, "--json", str(out))
    job = start("testbed.run", *words, *script)
    with bounded(job):
        assert job.stdout is not None
        assert any("connected" in line for line in job.stdout)
        listening = start("testbed.exec", "--name", testbed.name, HEAD, "--", *PYTHON, LISTENS)
        with bounded(listening):
            sends = command("testbed.exec", "--name", testbed.name, OTHER, "--", *PYTHON, SENDS)
            assert sends.returncode == 0, sends.stderr
            assert listening.wait(WAIT_S) == 0
        end.touch()
        said = job.communicate(timeout=WAIT_S)
        assert job.returncode == 0, said
    traffic = json.loads(out.read_text())["other_traffic"]
    assert {(each["link"], each["protocol"]) for each in traffic} == {(HEAD, TCP), (OTHER, TCP)}
    assert all(SENT_BYTES < each["bytes"] < 1.2 * SENT_BYTES for each in traffic), traffic
    assert OWN_PORT not in {each["port"] for each in traffic}
