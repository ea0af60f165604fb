"""Parallel circuits: a job's packets take both, and one that goes dark loses only what was on it."""

from __future__ import annotations

import pytest

from tests.privileged.inside import findings
from tests.privileged.parallel_scenarios import DARK_MS, GOES, STAYS, TOPOLOGY

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]


def test_a_circuit_that_goes_dark_loses_only_what_was_on_it() -> None:
    job = findings("parallel_scenarios:taken_over", TOPOLOGY)
    assert (job["errors"], job["wrong"]) == ([], 0)
    assert job["added"] == [GOES]
    assert job["dark_ms"] >= 0.9 * DARK_MS
    assert min(job["results_in_the_dark"]) > 0, "the other circuit took over"
    assert [job["lost"][port] for port in STAYS] == [0, 0]
    assert [job["carried"]["alone"][port] for port in GOES] == [0, 0]
    for when in ("both", "again"):
        assert all(job["carried"][when][port] for port in (*STAYS, *GOES))
