"""A few small random topologies; `python -m tests.bench.topologies` tries thirty."""

from __future__ import annotations

import pytest

from tests import topologies
from tests.privileged.commands import open_folder

pytestmark = [pytest.mark.needs("xdp", "ovs", "cgroups"), pytest.mark.usefixtures("nothing_left")]


def test_what_is_drawn_comes_up_and_sums_exactly() -> None:
    with open_folder() as folder:
        topologies.tried(count=2, number=3, folder=folder, most_units=2)
