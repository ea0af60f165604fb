"""Each process of a testbed, stopped for 15 s and continued, or killed, while a job sums, circuits change, a
job starts, and the testbed is ended: 30 s later all works again, or has ended and says why.

TESTBED_STALLS=all has every process both stopped and killed, TESTBED_STALLS=server,policy these; without it
three are, once each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Require
from tests.limits import SLOWER
from tests.privileged.host_state import assert_unchanged, host_snapshot
from tests.privileged.stalls import Cell, Outcome, cells, row

ASKED = os.environ.get("TESTBED_STALLS", "")
pytestmark = [
    pytest.mark.needs("namespaces", "xdp", "ovs", "torch"),
    pytest.mark.timeout(1800 if ASKED else 420),
]

PROCESSES = ("ovs-vswitchd", "ovsdb-server", "controller", "turner", "daemon", "template", "worker")
OF_USERS = ("server", "policy", "attended")  # a parameter server, a policy's process, exec's keeper
OUTSIDE = ("main", "unshare", "init", "keeper")
ALL = {process: ("stop", "kill") for process in (*PROCESSES, *OF_USERS, *OUTSIDE)}
USUAL = {"ovs-vswitchd": ("stop",), "controller": ("kill",), "template": ("kill",)}
ROWS = ALL if ASKED == "all" else {each: ALL[each] for each in ASKED.split(",")} if ASKED else USUAL
AT_ONCE = 4  # most of a row waits

Outcomes = dict[str, Future[dict[Cell, Outcome]]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    before, folder = host_snapshot(), tmp_path_factory.mktemp("stalls")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            process: pool.submit(row, process, *acts, folder=Path(folder)) for process, acts in ROWS.items()
        }
    assert_unchanged(before)


@pytest.mark.parametrize(
    "cell", [cell for process, acts in ROWS.items() for cell in cells(process, *acts)], ids=str
)
def test_all_works_again_or_has_ended_with_its_reason(
    outcomes: Outcomes, cell: Cell, require: Require
) -> None:
    if cell.process == "keeper":
        require("cgroups")
    outcome = outcomes[cell.process].result(1800 * SLOWER)[cell]
    print(f"{cell}: {outcome.took_s:.1f} s: {outcome.words}")
    assert not outcome.wrong
