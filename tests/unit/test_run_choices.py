"""`testbed run --ps`, `--python` and `--repeat`: whose host the server's is, what another Python lacks, and
what repeated runs write.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from pathlib import Path

import pytest

from testbed import run
from testbed.aggregation.site import Rack
from testbed.api.python import check_python
from testbed.client.caller import Caller
from testbed.errors import HostError, RequestError
from testbed.jobs.environment import worker_environment
from testbed.jobs.placement import host_for_server, parse_server
from testbed.topology.units import checked_unit
from tests.unit import recorded

U1, U2 = checked_unit(1), checked_unit(2)
RACKS = (Rack(U1, "gpu", 3), Rack(U2, "cpu", 2, (100.0, 200.0)))
ME = Caller.of(os.getuid())


def test_the_server_is_on_the_free_host_with_the_fastest_link_of_the_unit() -> None:
    assert host_for_server(RACKS, (), (), parse_server("u2")) == (U2, 2)
    assert host_for_server(RACKS, {(U2, 2)}, (), parse_server("u2")) == (U2, 1)
    assert host_for_server(RACKS, {(U1, 1)}, [(U1, 2)], parse_server("u1")) == (U1, 3)


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ("u9", "--ps u9: no such unit; accepted are u1 "),
        ("u1r1", "--ps u1r1: no such rack"),
        ("u2", "--ps u2: none of its 2 hosts is free"),
        ("u2h1", "--ps u2h1: "),
    ],
)
def test_a_server_that_cannot_be_there(at: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        host_for_server(RACKS, {(U2, 1)}, [(U2, 2)], parse_server(at))


def test_another_python_is_told_what_it_lacks(tmp_path: Path) -> None:
    check_python(ME, Path(sys.executable))
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\nexec /usr/bin/python3 -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(
        RequestError, match=r"lacks torch \(not installed\) and optinc .*: \S+ -m pip install torch"
    ):
        check_python(ME, bare)
    with pytest.raises(RequestError, match="cannot run it: No such file"):
        check_python(ME, tmp_path / "none")
    with pytest.raises(RequestError, match="it is no Python"):
        check_python(ME, Path("/bin/true"))


def test_a_worker_in_another_environment_has_that_one_s_modules() -> None:
    assert "PYTHONPATH" in worker_environment({}, ME)
    theirs = worker_environment({"PYTHONPATH": "/mine"}, ME, in_checkout=False)
    assert theirs["PYTHONPATH"] == "/mine"


@pytest.mark.parametrize("times", ["0", "-1", "1001"])
def test_how_often_a_job_can_be_repeated(times: str) -> None:
    with pytest.raises(RequestError, match=f"--repeat {times}: 1 to 1000 are accepted"):
        run.main(["--repeat", times, "x.py"])


def test_repeated_runs_have_logs_and_results_each(tmp_path: Path) -> None:
    assert run._logs_of(tmp_path, 2, ME) == tmp_path / "2"
    assert (tmp_path / "2").is_dir()
    with pytest.raises(HostError, match=r"--logs .*: 1: "):
        run._logs_of(tmp_path / "none", 1, ME)
    results = [
        recorded.run_result(round_ms, series=base64.b64encode(f"{round_ms}".encode()).decode())
        for round_ms in (10.0, 12.0)
    ]
    run._write_results(argparse.Namespace(json=tmp_path / "all.json", repeat=2), results, ME)
    written = json.loads((tmp_path / "all.json").read_text())
    assert [each["telemetry"]["file"] for each in written["runs"]] == [
        "all.1.telemetry.npz",
        "all.2.telemetry.npz",
    ]
    assert (tmp_path / "all.2.telemetry.npz").read_bytes() == b"12.0"
    assert written["means"]["round_ms"]["mean"] == 11.0
