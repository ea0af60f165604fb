"""The table of packet vectors, on the XDP programs in the kernel."""

from __future__ import annotations

import pytest

from tests.privileged.packets import found
from tests.vectors.table import TABLE

pytestmark = [pytest.mark.needs("namespaces", "xdp")]


@pytest.fixture(scope="module")
def wrong() -> dict[str, list[str]]:
    """By vector; one compilation for all of them."""
    return dict(found("vector_run"))


# Where bpf/ departs from docs/protocol.md today. Strict: a vector that passes must leave this list.
DEPARTURES = {
    "lanes wrap around without carry": "two lanes are added as one 64-bit number: the lower carries into the upper",
    "a result that passes is kept": "the kept result's count stays the partial sum's",
    "a result that is not the jobs is lost": "a result that names a slot outside the segment passes a ToR",
}
NAMES = [
    pytest.param(name, marks=pytest.mark.xfail(reason=DEPARTURES[name])) if name in DEPARTURES else name
    for name in TABLE
]


@pytest.mark.parametrize("name", NAMES)
def test_vector(name: str, wrong: dict[str, list[str]]) -> None:
    assert wrong[name] == []
