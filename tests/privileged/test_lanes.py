"""The gate's lanes on the real kernel: one alone, and then two at once, in namespaces of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes
from tests.privileged.commands import ROOT
from tests.privileged.host_state import RUNTIME

pytestmark = pytest.mark.needs("namespaces")

CONFTEST = """
from tests import lanes


def pytest_configure(config):
    is_lane = hasattr(config, "workerinput")
    config.pluginmanager.register(lanes.Lane.of(config) if is_lane else lanes.Dealer(), "lanes")
"""
MEETING = """
import os, pathlib, socket, time
import pytest

FOLDER, RUNTIME = pathlib.Path({folder!r}), pathlib.Path({runtime!r})
OWN, OTHER = {names!r}


def reached(other, mark):
    (FOLDER / f"{{OWN}}-{{mark}}").touch()
    deadline = time.monotonic() + 60
    while not (FOLDER / f"{{other}}-{{mark}}").exists():
        assert time.monotonic() < deadline, "the other lane's test does not run beside this one"
        time.sleep(0.01)


def test_beside_another_and_apart_from_it():
    (RUNTIME / OWN).mkdir()
    server = socket.create_server(("127.0.0.1", 7013))
    reached(OTHER, "began")
    assert [path.name for path in RUNTIME.iterdir()] == [OWN]
    assert socket.if_nameindex() == [(1, "lo")]
    reached(OTHER, "looked")
    server.close()
    (RUNTIME / OWN).rmdir()


@pytest.mark.alone
@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    assert not list(FOLDER.glob("*-began")), "another lane's test began before"
    busy = FOLDER / "busy"
    busy.mkdir()
    time.sleep(0.1)
    busy.rmdir()
"""


def test_lanes_meet_and_see_nothing_of_each_other(tmp_path: Path) -> None:
    """Tests that are alone, of both files, find nobody's folder. Then each file finds the other's test under
    way; neither sees the other's folder or devices.
    """
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = alone\naddopts = -p no:dash\n")
    for names in (("left", "right"), ("right", "left")):
        text = MEETING.format(folder=str(tmp_path), runtime=str(RUNTIME), names=names)
        (tmp_path / f"test_{names[0]}.py").write_text(text)
    before = sorted(RUNTIME.iterdir()) if RUNTIME.exists() else []
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *lanes.options(3)]
    argv += [f"--basetemp={tmp_path}/files", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"=+ 8 passed in .*s =+", done.stdout.rstrip().splitlines()[-1])
    assert (sorted(RUNTIME.iterdir()) if RUNTIME.exists() else []) == before
