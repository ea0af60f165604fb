"""`testbed run --ps` and `--python`: whose host the server's is, and what another Python lacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from testbed.aggregation.system import Rack
from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.jobs.environment import worker_environment
from testbed.jobs.placement import host_for_server, parse_server
from testbed.run import check_python
from testbed.topology.units import checked_unit

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
