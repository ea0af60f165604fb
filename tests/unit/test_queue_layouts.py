"""The layouts that policies can decide on, of those that systems make."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from testbed.aggregation.site import Rack, Site
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.plugins.policies import Choice
from testbed.plugins.registry import find
from testbed.queue.layouts import check_choice, hub_of, meeting_of, served_where_asked
from testbed.systems.p4inc.system import P4inc
from testbed.topology import catalogue
from testbed.topology.places import Host
from testbed.wire.transports import GLOO

RACKS = (Rack(1, "gpu", 4), Rack(2, "gpu", 4), Rack(3, "gpu", 4), Rack(4, "cpu", 2))
SITE = Site(RACKS, frozenset(), frozenset())
ONE = [(2, 1), (2, 2)]
TWO = [(1, 1), (2, 1), (2, 2)]
THREE = [(1, 1), (2, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize(
    ("system", "workers", "hub", "meeting"),
    [
        ("ring", ONE, 2, 1),
        ("ring", TWO, 1, 1),
        ("ps", THREE, 4, 4),
        ("inc", ONE, 2, 1),
        ("inc", THREE, 4, 3),
        ("switches", TWO, 2, 1),
        ("switches", THREE, 2, 2),
    ],
)
def test_circuits_meet_at_one_unit(system: str, workers: list[Host], hub: int, meeting: int) -> None:
    layout = find(system).lay_out(workers, SITE)
    assert (hub_of(layout), meeting_of(layout)) == (hub, meeting)


def test_a_ring_over_three_units_has_no_such_unit() -> None:
    with pytest.raises(
        RequestError, match=r"^sync ring: it needs circuits u1-u2, u2-u3, u3-u1; policies decide on"
    ):
        hub_of(find("ring").lay_out(THREE, SITE))


def test_a_unit_without_workers_is_joined_to_the_hub_alone() -> None:
    layout = Layout("mine", tuple(TWO), GLOO, demands=((1, 2), (1, 3)))
    with pytest.raises(RequestError, match="sync mine: it needs circuits u1-u2, u1-u3"):
        hub_of(layout)


def test_a_server_is_where_it_was_asked_for() -> None:
    served, alone = (find(name).lay_out(TWO, SITE) for name in ("ps", "ring"))
    assert [served_where_asked(served, unit) for unit in (None, 4, 1)] == [True, True, False]
    assert served_where_asked(alone, 1), "it needs none"


class Voting(P4inc):
    """A system with another program for its switches."""

    name = "voting"


@pytest.mark.parametrize(
    ("programs", "is_refused"), [({"xdp": "vote"}, True), ({"bmv2": "vote"}, False), ({"xdp": "sum"}, False)]
)
def test_a_policy_whose_summing_system_has_no_such_program_here_is_refused(
    programs: dict[str, str], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Voting, "programs", programs)
    refused = (
        r"^policy mine: its jobs are summed by voting, whose program for engine: xdp is 'vote'; accepted"
    )
    with pytest.raises(RequestError, match=refused) if is_refused else nullcontext():
        check_choice("mine", Choice(Voting(), find("ps")), catalogue.ready("default"))
