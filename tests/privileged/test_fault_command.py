"""`testbed fault` on a running testbed: set, list, status, clear, and one line for each mistake."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.privileged.commands import command, running

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]


def answer(name: str, *words: str) -> Any:
    ended = command("testbed.fault", *words, "--name", name, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_faults_are_set_shown_and_cleared() -> None:
    with running() as testbed:
        faults = answer(
            testbed.name, "set", "u1h1", "u1o2", "--loss", "1%", "--reorder", "2%", "--distance", "30"
        )
        assert [(each["link"], each["direction"]) for each in faults] == [
            ("u1h1", "up"),
            ("u1h1", "down"),
            ("u1o2", "up"),
            ("u1o2", "down"),
        ]
        assert all((each["loss"], each["reorder"], each["distance"]) == (0.01, 0.02, 30) for each in faults)
        faults = answer(testbed.name, "set", "u1h1", "--direction", "up", "--corrupt", "0.1%")
        assert [(each["loss"], each["corrupt"]) for each in faults[:2]] == [(0.0, 0.001), (0.01, 0.0)]
        listed = command("testbed.fault", "--name", testbed.name, "list").stdout
        assert re.search(r"^u1h1 +up .* corrupt 0.1%, seed 1$", listed, re.MULTILINE), listed
        assert "faults      on u1h1 u1o2: " in command("testbed.status", "--name", testbed.name).stdout
        assert [each["link"] for each in answer(testbed.name, "clear", "u1h1")] == ["u1o2", "u1o2"]
        assert answer(testbed.name, "clear", "all") == []
        assert answer(testbed.name, "list") == []
        assert "faults" not in command("testbed.status", "--name", testbed.name).stdout
        for words, code, says in (
            (["set", "u9h1", "--loss", "1%"], 2, "link u9h1: there is none; accepted are u1h1, "),
            (["set", "u1h1", "u9h1", "--loss", "1%"], 2, "link u9h1: there is none"),
            (["set", "u1h1"], 2, "no fault: a rate above 0"),
            (["set", "u1h1", "--reorder", "1%", "--distance", "0"], 2, "distance: 0; a whole number from 1"),
            (
                ["set", "u1h1", "--loss", "1%", "--direction", "left"],
                2,
                "direction: 'left'; up, down or both",
            ),
            (["clear", "u9h1"], 2, "link u9h1: there is none"),
        ):
            ended = command("testbed.fault", *words, "--name", testbed.name)
            assert (ended.returncode, len(ended.stderr.splitlines())) == (code, 1), ended.stderr
            assert says in ended.stderr
        assert answer(testbed.name, "list") == [], "a request that is refused sets nothing"


def test_a_link_without_a_rate_takes_no_fault(tmp_path: Any) -> None:
    config = tmp_path / "unshaped.yaml"
    config.write_text("units: [{hosts: 2}]\nhost_rate_mbps: unshaped\n")
    with running(str(config)) as testbed:
        ended = command("testbed.fault", "set", "u1h1", "--loss", "1%", "--name", testbed.name)
        assert ended.returncode == 2
        assert ended.stderr.strip().endswith(
            "link u1h1: it has no rate, and a fault stage only fits into a link that has; this testbed has "
            "no link with a rate"
        )
