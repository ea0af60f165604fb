"""The table of packet vectors, and the scenes of light and of copies, on the XDP programs in the kernel."""

from __future__ import annotations

import pytest

from tests.privileged import copy_scenes
from tests.privileged.notice_run import PS_PORT
from tests.privileged.packets import findings
from tests.vectors import lights, spread
from tests.vectors.build import OPTICAL
from tests.vectors.table import TABLE

pytestmark = [pytest.mark.needs("namespaces", "xdp"), pytest.mark.timeout(540)]


@pytest.fixture(scope="module")
def wrong() -> dict[str, list[str]]:
    """The differences by vector; one compilation for all of them."""
    return dict(findings("vector_run"))


@pytest.mark.parametrize("name", [*TABLE, *lights.TABLE, *spread.TABLE, *copy_scenes.SCENES])
def test_vector(name: str, wrong: dict[str, list[str]]) -> None:
    assert wrong[name] == []


def test_a_notice_leaves_by_the_ports_of_workers_alone() -> None:
    """Two ports to other switches are in the job's group, each of which would send it back: it would
    circulate.
    """
    left = {int(port): by for port, by in findings("notice_run").items()}
    assert left == {**{port: [2, 4] for port in OPTICAL}, PS_PORT: [2, 4]}


def test_an_empty_push_gets_room_for_the_sum_that_it_completes() -> None:
    assert findings("room_run") == {"wrong": [], "again": []}


def test_a_lock_is_waited_for_as_long_as_an_interrupt_takes() -> None:
    """Its holder may be in one: with `--recovery none`, a push that does not wait for it ends the job."""
    seen = findings("lock_run")
    assert (seen["locked"], seen["after"]) == (["lock_busy"], "aggregated")
    assert seen["waited_s"] > 150e-6
