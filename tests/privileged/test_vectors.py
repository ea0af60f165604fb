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


@pytest.mark.parametrize("name", TABLE)
def test_vector(name: str, wrong: dict[str, list[str]]) -> None:
    assert wrong[name] == []
