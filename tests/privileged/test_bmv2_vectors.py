"""BMv2 against the table of packet vectors, and in step with the reference model; lanes 64 to a register, and
one each.
"""

from __future__ import annotations

from functools import partial

import pytest

from testbed.dataplanes.bmv2.compile import compiler
from tests.at_once import at_once
from tests.privileged import bmv2_model_run, bmv2_vector_run
from tests.privileged.bmv2_vector_run import IN_LIGHT, KINDS
from tests.vectors.in_step import TRIED

OWNED_PACKETS = 3000
COMPILED_HERE = ("registers",)  # kept nowhere

pytestmark = [pytest.mark.needs("namespaces", "bmv2"), pytest.mark.timeout(660)]


@pytest.fixture(scope="module")
def wrong() -> dict[str, dict[str, list[str]]]:
    """The differences by kind of program and vector; one switch for all vectors of a kind."""
    able = [kind for kind in KINDS if kind not in COMPILED_HERE or compiler()]
    return at_once({kind: partial(bmv2_vector_run.findings, kind) for kind in able})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=[pytest.mark.needs("p4c")] if kind in COMPILED_HERE else [])
        for kind, (_, _, vectors) in KINDS.items()
        for name in (*vectors, *IN_LIGHT)
    ],
)
def test_vector(kind: str, name: str, wrong: dict[str, dict[str, list[str]]]) -> None:
    assert wrong[kind][name] == []


@pytest.fixture(scope="module")
def verdicts() -> dict[str, dict[str, int]]:
    """The counts of verdicts by method of Trial. A difference fails in there, with the packet."""
    runs = {tried: partial(bmv2_model_run.findings, tried) for tried in TRIED}
    return at_once({**runs, "owned": partial(bmv2_model_run.findings, "owned", frames=OWNED_PACKETS)})


def test_whole_jobs_in_all_weathers(verdicts: dict[str, dict[str, int]]) -> None:
    assert set(verdicts["worlds"]) >= {
        "aggregated",
        "completed",
        "duplicate",
        "resent",
        "result",
        "forwarded",
    }


def test_schedules_that_keep_no_window(verdicts: dict[str, dict[str, int]]) -> None:
    met = {
        "aggregated",
        "completed",
        "duplicate",
        "resent",
        "stale",
        "mismatch",
        "bad_slot",
        "bad_generation",
    }
    assert set(verdicts["schedules"]) >= met


def test_malformed_and_adversarial_packets(verdicts: dict[str, dict[str, int]]) -> None:
    met = {"malformed", "corrupt", "bad_sender", "forwarded", "to_ovs", "notice", "bad_slot"}
    assert set(verdicts["mutated"]) >= met
    assert sum(verdicts["mutated"].values()) == bmv2_model_run.MUTATIONS


def test_packets_of_owned_trees(verdicts: dict[str, dict[str, int]]) -> None:
    met = {"aggregated", "completed", "resent", "duplicate", "stale", "beat", "result", "bad_worker"}
    met |= {"bad_generation", "bad_job", "bad_sender", "bad_slot", "malformed", "corrupt", "forwarded"}
    assert set(verdicts["owned"]) >= met
    assert sum(verdicts["owned"].values()) >= OWNED_PACKETS
