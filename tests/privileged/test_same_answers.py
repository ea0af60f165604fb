"""The answers of `inc`: every collective of every type, and whatever gloo refuses, as NCCL does; time limits,
interrupts, and the script's memory as with gloo.

The cases are in jobs/same_answers.py, which compares them with the values of all workers and with gloo.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privileged.commands import Testbed, command, running

SCRIPT = Path(__file__).resolve().parent / "jobs" / "same_answers.py"
ANSWERS = (
    *("reduces", "moves", "calls_of_nccl", "memory_is_the_scripts", "interrupts_stay"),
    *("barriers_end_after_sums", "what_is_refused_here_is_no_call", "a_future_of_lists_has_lists"),
)
LIMITS = ("limits_are_kept", "limits_of_a_group_made_again_are_kept")

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as it:
        yield it


def run(testbed: Testbed, result: Path, *cases: str) -> subprocess.CompletedProcess[str]:
    words = ("--name", testbed.name, "--preload", "--place", "u1:2", "--json", str(result))
    return command("testbed.run", *words, str(SCRIPT), *cases)


def said(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted(re.findall(r"\] same: (.*)", ended.stdout))


def test_all_collectives_answer_alike_whatever_their_types_and_sizes(
    testbed: Testbed, tmp_path: Path
) -> None:
    ended = run(testbed, tmp_path / "result.json", *ANSWERS)
    assert said(ended) == sorted(2 * [f"{name}: ok" for name in ANSWERS]), ended.stdout[-4000:] + ended.stderr
    by = json.loads((tmp_path / "result.json").read_text())["bytes_by"]
    assert by["packets"] > 0
    assert by["gloo"] > 0


@pytest.mark.parametrize("name", LIMITS)
def test_time_limits_of_groups_and_calls_are_kept(testbed: Testbed, tmp_path: Path, name: str) -> None:
    ended = run(testbed, tmp_path / "result.json", name)
    assert said(ended) == 2 * [f"{name}: ok"], ended.stdout[-4000:] + ended.stderr
