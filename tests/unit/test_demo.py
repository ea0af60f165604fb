"""The demo's trainings and their places, and that it ends what it has started."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from testbed.demo import jobs_on
from testbed.errors import RequestError
from testbed.topology.catalogue import find
from testbed.topology.load import parse

ROOT = Path(__file__).resolve().parents[2]


def test_the_default_configuration_trains_in_one_unit_and_across_two() -> None:
    assert jobs_on(find("default"), None) == {
        "inc": ("inc", "u1:4"),
        "ring": ("ring", "u1:4"),
        "ps": ("ps", "u1:4"),
        "inc-across": ("inc", "u1:2,u2:2"),
    }


def test_its_own_configuration_is_the_default_but_for_the_scale() -> None:
    mine, default = find("demo"), find("default")
    assert mine.scale > default.scale
    assert dataclasses.replace(mine, name=default.name, scale=default.scale) == default


def test_a_single_rack_keeps_a_host_for_the_parameter_server() -> None:
    assert jobs_on(find("rack"), None) == {sync: (sync, "u1:3") for sync in ("inc", "ring", "ps")}


def test_a_place_of_the_users_own_is_used_for_all() -> None:
    assert set(jobs_on(find("default"), "u2:3").values()) == {
        ("inc", "u2:3"),
        ("ring", "u2:3"),
        ("ps", "u2:3"),
    }


def test_one_host_is_too_few() -> None:
    with pytest.raises(RequestError, match="lone: 1 host; at least 2 are accepted"):
        jobs_on(parse({"units": [{"hosts": 1}]}, "lone"), None)


def test_a_signal_ends_the_command_that_runs() -> None:
    # the command in the child ignores nothing and would sleep for minutes; `down` is not asked, for nothing
    # is up
    code = textwrap.dedent(
        """
        import sys
        from testbed.client import temporary
        class Popen(temporary.subprocess.Popen):
            def __init__(self, words, **_):
                super().__init__([sys.executable, "-c", "import time; time.sleep(600)"])
            def wait(self, *timeout):
                print("waits", flush=True)
                return super().wait(*timeout)
        temporary.subprocess.Popen = Popen
        with temporary.running("demo-of-a-test", "default"):
            print("up", flush=True)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "waits\n"
        os.kill(demo.pid, signal.SIGTERM)
        # its output ends when the command has ended too, which holds the pipe
        rest, errors = demo.communicate(timeout=120)
    assert "up" not in rest
    assert "KeyboardInterrupt" in errors
