"""Root's commands in a folder of somebody else's, who has left a file there for each module that they may
import: none of these runs.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import ROOT, Testbed, environment, fresh_name, running

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch"), pytest.mark.timeout(600)]

TESTBED = str(Path(sys.prefix) / "bin" / "testbed")
CONFIG = "units: [{hosts: 3}]\nhost_rate_mbps: 40000\nscale: 200\nmtu: 9000\n"
VECTORS = str(ROOT / "workloads" / "jobs" / "vectors.py")
SHORT = ("--values", "1000", "--turns", "3")


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trap for each module of the standard library, of the project and of what it needs."""
    folder = tmp_path_factory.mktemp("traps")
    packages = importlib.metadata.packages_distributions()
    for name in {*sys.stdlib_module_names, *packages, "testbed", "controller", "workloads", "tests"}:
        if name.isidentifier():
            said = folder / "sprung"
            (folder / f"{name}.py").write_text(f"open({str(said)!r}, 'a').write({name!r} + '\\n')\n")
    return folder


@pytest.fixture(scope="module")
def testbed(traps: Path) -> Iterator[Testbed]:
    config = traps.parent / "config.yaml"
    config.write_text(CONFIG)
    with running(str(config), cwd=traps) as made:
        yield made


def called(traps: Path, *words: str, given: str = "") -> str:
    """Run a command there, as root types it; return what it printed."""
    done = subprocess.run(
        [TESTBED, *words],
        cwd=traps,
        env=environment({"OPTINC_RUNS": str(traps.parent / "runs")}),
        input=given,
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    assert not (traps / "sprung").exists(), f"{words[0]}: {(traps / 'sprung').read_text().split()}"
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_that_need_no_testbed(traps: Path) -> None:
    called(traps, "doctor")
    called(traps, "systems")
    called(traps, "cluster", "--config", "rack", "--place", "u1:3")
    called(traps, "runs", "list")
    called(traps, "reproduce", "--help")


def test_commands_on_a_testbed(traps: Path, testbed: Testbed) -> None:
    assert not (traps / "sprung").exists(), f"up: {(traps / 'sprung').read_text().split()}"
    name = ("--name", testbed.name)
    jobs, steps = traps.parent / "jobs.json", traps.parent / "steps.yaml"
    job = {
        "name": "a",
        "script": VECTORS,
        "arguments": SHORT,
        "iterations": 3,
        "megabytes": 0.1,
        "workers": 2,
    }
    jobs.write_text(json.dumps({"policy": "inc-fcfs", "slot_s": 0.1, "jobs": [job]}))
    steps.write_text("- {at: 0, do: link reset all}\n")
    for sync in ("ps", "aleph"):
        called(traps, "run", *name, "--place", "u1:2", "--sync", sync, VECTORS, *SHORT)
    called(traps, "run", *name, "--place", "u1:2", "--preload", VECTORS, *SHORT)
    for words in (
        ("status",),
        ("submit", str(jobs)),
        ("circuits", "list"),
        ("link", "list"),
        ("fault", "list"),
        ("capture", "u1h1", "--count", "1", "--seconds", "0.1", "--output", str(traps.parent / "a.pcap")),
        ("script", str(steps)),
    ):
        called(traps, words[0], *words[1:2], *name, *words[2:])
    called(traps, "exec", *name, "u1h1", "true")
    called(traps, "shell", *name, given="exit\n")


def test_the_library_as_root(traps: Path) -> None:
    """Its own process is the user's; those that it starts are the project's."""
    code = (
        "import sys, testbed\n"
        f"with testbed.Testbed({{'units': [{{'hosts': 2}}]}}, name={fresh_name()!r}) as made:\n"
        f"    made.run({VECTORS!r}, *{SHORT!r}, place='u1:2', record=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=traps,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    assert not (traps / "sprung").exists(), (traps / "sprung").read_text().split()
    assert done.returncode == 0, done.stderr
