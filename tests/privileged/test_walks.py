"""The walks of a queued job and of a link's rate: down the layers. What calls stand when the end is reached
passes no module twice; and of a job that runs, those that returned before came into no module by nine
functions.
"""

from __future__ import annotations

import pytest

from tests.bench.host import ROOT
from tests.bench.walks import recorded

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]
CALL_BACK = {
    "client/environment": "calls the command that __main__ hands to it",
    "emulation/nodes": "is the base of the testbed's Mininet, whose constructor calls build",
}
WORDS = {
    "topology/addresses": "holds names and numbers, a function each, and nothing that a walk does",
    "topology/model": "describes units and links, a property each, and does nothing",
    "scheduling/live": "says a running fabric in the words of policies, a function each",
}
MOST_ENTRIES = 8  # functions of one module that are called from others until the end is reached


def test_no_walk_comes_to_a_module_twice_or_enters_it_by_nine_functions() -> None:
    walks = recorded(ROOT)
    for name, walk in walks.items():
        way = [module for module in walk.way if module not in CALL_BACK]
        once = [module for at, module in enumerate(way) if at == 0 or way[at - 1] != module]
        assert sorted(once) == sorted(set(once)), f"{name}: {' > '.join(walk.way)}"
    job, decided, configured = walks.values()
    for walk in (job, decided):
        entered = {module: names for module, names in walk.entered.items() if module not in WORDS}
        assert [names for names in entered.values() if len(names) > MOST_ENTRIES] == []
    assert (job.way[0], job.way[-1]) == ("__main__", "emulation/spawner")
    assert {decided.way[-1], configured.way[-1]} == {"emulation/netlink"}
    assert "submit" in job.way
    assert "queue/session" in decided.way
