"""Jobs with an optimizer node where switches are BMv2's: one at the top above an XDP switch and another of
its kind, under faults too. What comes out is to the bit what it is where all switches are XDP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privileged.commands import Testbed, command, open_folder, running
from tests.privileged.test_luwu import FAULTS, MODEL, SCRIPT

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch", "bmv2"), pytest.mark.timeout(300)]

PLACE, WORKERS, STEPS = "u1:2,u2:2", 4, 4
PLACES = ("u1", "u2", "u3")
LINKS = ("u1h1", "u1h2", "u1o1", "u2h1", "u2h2", "u2o1", "u3h1")


def fabric(engines: tuple[str, str, str]) -> str:
    """A configuration with two units of workers and one of the node, with these engines."""
    kinds = ({"hosts": 2}, {"hosts": 2}, {"kind": "optimizer", "hosts": 1})
    units = [{**kind, "engine": engine} for kind, engine in zip(kinds, engines, strict=True)]
    rates = {"host_rate_mbps": 10_000, "optical_rate_mbps": 10_000, "scale": 100}
    return json.dumps({"units": units, "optical_ports": 2, **rates})


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


@pytest.fixture(scope="module")
def on_xdp(folder: Path) -> str:
    """The parameters that a job ends with where every switch is XDP."""
    config = folder / "xdp.yaml"
    config.write_text(fabric(("xdp", "xdp", "xdp")))
    with running(str(config)) as testbed:
        return trained(testbed, folder / "xdp")


@pytest.fixture(scope="module")
def testbed(folder: Path) -> Iterator[Testbed]:
    config = folder / "mixed.yaml"
    config.write_text(fabric(("bmv2", "xdp", "bmv2")))
    with running(str(config)) as testbed:
        yield testbed


def trained(testbed: Testbed, states: Path, *options: str) -> str:
    """Return the number of all parameters that all workers have after a job."""
    states.mkdir()
    words = ["--name", testbed.name, "--sync", "luwu", "--place", PLACE, "--timeout", "200", *options]
    job = [SCRIPT, "--states", str(states), "--steps", str(STEPS), *MODEL]
    done = command("testbed.run", *words, *job, timeout_s=250)
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = re.findall(r"parameters ([0-9a-f]{16})$", done.stdout, re.MULTILINE)
    assert len(numbers) == WORKERS, done.stdout
    assert len(set(numbers)) == 1, numbers
    return str(numbers[0])


def test_parameters_are_those_of_xdp_switches(testbed: Testbed, folder: Path, on_xdp: str) -> None:
    file = folder / "clean.json"
    assert trained(testbed, folder / "clean", "--json", str(file)) == on_xdp
    (tree,) = json.loads(file.read_text())["sums"]
    assert sorted((tree["place"], *(below["place"] for below in tree["below"]))) == sorted(PLACES)


def test_parameters_are_the_same_under_faults(testbed: Testbed, folder: Path, on_xdp: str) -> None:
    """Packets are lost, doubled and overtaken on every link, and no end gets what it has no room for."""
    file = folder / "faults.json"
    set_ = command("testbed.fault", "set", "--name", testbed.name, *FAULTS, *LINKS)
    assert set_.returncode == 0, set_.stderr
    try:
        assert trained(testbed, folder / "faults", "--json", str(file)) == on_xdp
    finally:
        cleared = command("testbed.fault", "clear", "--name", testbed.name)
        assert cleared.returncode == 0, cleared.stderr
    nics = [worker["stats"]["nic"] for worker in json.loads(file.read_text())["workers"]]
    assert [(nic["dropped"], nic["gotten"]["overflowed"]) for nic in nics] == [(0, 0)] * WORKERS
    assert sum(nic["given"]["again"] for nic in nics) > 0, "what was lost was sent again"
