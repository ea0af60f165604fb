"""A job's own traffic is never called another's: by each system, across units, alone on its testbed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.discovery.registry import systems
from tests.privileged.commands import ROOT, Testbed, command, open_folder, running

PACED = (str(ROOT / "tests" / "privileged" / "jobs" / "paced.py"), "1", "31253", "0")
STATES = (str(ROOT / "workloads" / "luwu" / "jobs" / "text.py"), "--steps", "4", "--states")
LEAST_BYTES = 100_000
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
