"""Fixtures of tests on the real kernel: each test needs root, is skipped with that reason otherwise, and
leaves the host as it found it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import lanes
from tests.limits import SLOWER
from tests.privileged.host_state import assert_unchanged, host_snapshot

HERE = Path(__file__).resolve().parent
# programs that a test starts have limits of their own, up to 360 s, whose messages are more precise
LIMIT_S = 420


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.privileged)
            item.add_marker(pytest.mark.needs("root"))
            own = item.get_closest_marker("timeout")
            limit_s = own.args[0] if own else LIMIT_S
            item.add_marker(pytest.mark.timeout(limit_s * SLOWER), append=False)


@pytest.fixture(scope="session", autouse=True)
def own_namespaces(request: pytest.FixtureRequest) -> None:
    """Run the tests in namespaces in which they see what they made themselves, and not what other programs
    mount or make meanwhile. The gate's lanes are in such namespaces already.
    """
    if os.geteuid() == 0 and not hasattr(request.config, "workerinput"):  # not a worker of pytest-xdist
        lanes.enter()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a process, interface, mount, BPF object or runtime folder behind, and
    name it.
    """
    before = host_snapshot()
    yield
    assert_unchanged(before)
