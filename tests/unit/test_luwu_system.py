"""LuWu as a system: its layout, what places and processes are told of an owned tree, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.aggregation.entries import NO_IP, Role, Sender
from testbed.aggregation.forest import Forest, Node, Tree
from testbed.aggregation.grants import Group
from testbed.aggregation.packets import Packets
from testbed.aggregation.site import Site, racks_of
from testbed.aggregation.system import Layout, completed
from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.jobs.placement import check_packets, laid_out
from testbed.jobs.request import JobRequest
from testbed.jobs.services import server_spec, service_address
from testbed.systems.job_options import JobOptions
from testbed.systems.luwu.system import SERVICE, LuWu
from testbed.topology.catalogue import ready
from testbed.topology.places import Host, switch
from testbed.wire.node_settings import NodeSettings
from testbed.wire.recovery import Recovery
from testbed.wire.settings import read
from testbed.wire.transports import OWNED
from tests.unit.test_admission import World

PODS = ready("pods")
POD_RACKS = racks_of(PODS)
ACROSS = Forest(
    ((1, 1), (1, 2), (2, 1)),
    (Tree(Node(switch(3), (), (Node(switch(1), (0, 1)), Node(switch(2), (2,)))), owner=(3, 2)),),
)
WAYS = [{3: [("u3-o1",), ("u3-o2",)], 1: [], 2: []}]
PROGRAMS = {"xdp": "owned", "bmv2": "owned"}
UNITS: list[dict[str, object]] = [{"hosts": 3}, {"hosts": 3}, {"hosts": 3}]


def request_of(folder: Path) -> JobRequest:
    caller = Caller(os.getuid(), os.getgid(), (), "nobody", str(folder))
    return JobRequest("x.py", (), "luwu", None, caller, str(folder), {}, None, None)


def layout_of(name: str, workers: list[Host], *busy: Host) -> Layout:
    return LuWu().lay_out(workers, Site(racks_of(ready(name)), frozenset(busy), frozenset()))


def test_its_node_is_on_a_unit_of_kind_optimizer() -> None:
    workers: list[Host] = [(1, host) for host in range(1, 9)]
    layout = layout_of("luwu", workers)
    assert (layout.server, layout.transport, layout.service) == ((2, 1), OWNED, SERVICE)
    assert layout.forest
    assert layout.forest.trees == (
        Tree(Node(switch(2), (), (Node(switch(1), tuple(range(8))),)), owner=(2, 1)),
    )
    assert layout.demands == ((1, 2),)
    assert layout.hosts() == {*workers, (2, 1)}


def test_without_such_a_unit_it_is_anywhere() -> None:
    layout = layout_of("rack", [(1, 1), (1, 2)])
    assert layout.server == (1, 3)
    assert layout.forest
    assert layout.forest.trees == (Tree(Node(switch(1), (0, 1)), owner=(1, 3)),)
    assert layout.demands == ()


def test_without_a_free_host_it_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^no free host for the optimizer node: all 4 hosts are"):
        layout_of("rack", [(1, host) for host in range(1, 5)])


def test_in_pods_each_switch_sums_what_is_below_it() -> None:
    workers = [host for rack in POD_RACKS[:2] for host in rack.members()]
    layout = LuWu().lay_out(workers, Site(POD_RACKS, frozenset(), frozenset()))
    assert layout.forest
    (tree,) = layout.forest.trees
    assert tree.top.place == switch(3)
    assert [node.place for node in tree.top.below] == [switch(1), switch(2)]
    below = [node.place for pod in tree.top.below for node in pod.below]
    assert list(map(str, below)) == ["u1r1", "u1r2", "u2r1", "u2r2"]


def test_an_engine_without_its_program_is_refused() -> None:
    site = Site(racks_of(ready("luwu")), frozenset(), frozenset())
    with pytest.raises(RequestError, match="--sync luwu: u2 has engine: none, which cannot sum for it"):
        laid_out(LuWu(), [(1, 1), (1, 2)], site, {1: "xdp", 2: "none"})
    assert laid_out(LuWu(), [(1, 1), (1, 2)], site, {1: "xdp", 2: "bmv2"}).programs == PROGRAMS


@pytest.mark.parametrize(
    ("packets", "option"),
    [
        (Packets(recovery=Recovery.INTEGRITY), "--recovery integrity"),
        (Packets(recovery=Recovery.NONE), "--recovery none"),
        (JobOptions(window=4).packets, "--window 4"),
        (JobOptions(age_out_ms=4.0).packets, "--age-out 4.0"),
    ],
)
def test_what_its_ends_do_by_themselves_is_refused(packets: Packets, option: str) -> None:
    layout = completed(layout_of("luwu", [(1, 1), (1, 2)]), LuWu())
    with pytest.raises(RequestError, match=f"^{option}: luwu sends by acknowledgements and credit"):
        check_packets(layout, packets, {1: "xdp", 2: "xdp"}, 1500)
    check_packets(layout, Packets(lanes=64), {1: "xdp", 2: "xdp"}, 1500)


def test_places_know_the_owner_and_only_its_port_is_the_owners() -> None:
    world = World(units=UNITS)
    admission = world.all.admit(7, 3, ACROSS, WAYS, programs=PROGRAMS)
    top, below = world.tors[3].entries[7, 0], world.tors[1].entries[7, 0]
    assert (top.program, top.role, top.up_ip, top.to_ip) == ("owned", Role.TOP, NO_IP, "10.0.3.2")
    assert (below.program, below.role, below.to_ip) == ("owned", Role.INNER, "10.0.3.254")
    assert world.tors[3].senders == {2: Sender(7, None, is_owner=True)}
    assert world.tors[1].senders == {1: Sender(7, 0), 2: Sender(7, 1)}
    assert world.tors[3].groups[7, 0] == ["u3-o1", "u3-o2"], "its own packets do not come back to the owner"
    assert world.tors[1].groups[7, 0] == ["u1-h1", "u1-h2"]
    assert set(world.hosts.rings) == {(1, 1), (1, 2), (2, 1), (3, 2)}
    assert admission.owner_env().group == "239.192.0.7"
    with pytest.raises(RequestError, match="job 7: its sums go to their owner, and groups have none"):
        world.all.admit_group(7, 9, Forest(((1, 1),), (Tree(Node(switch(1), (0,))),)), Group((0,), (50000,)))
    world.all.release(7)
    assert world.holds_nothing()


def test_a_switch_that_only_passes_packets_on_knows_whose_they_are() -> None:
    world = World(units=UNITS)
    forest = Forest(((1, 1), (1, 2)), (Tree(Node(switch(3), (), (Node(switch(1), (0, 1)),)), owner=(3, 1)),))
    world.all.admit(7, 3, forest, [{3: [("u3-o1",)], 2: [("u2-o2",)], 1: []}], programs=PROGRAMS)
    passing = world.tors[2].entries[7, 0]
    assert (passing.role, passing.program) == (Role.TRANSIT, "owned")


def test_its_process_is_told_of_its_end_of_the_tree(tmp_path: Path) -> None:
    world, layout = World(units=UNITS), Layout("luwu", ACROSS.workers, OWNED, (3, 2), ACROSS, service=SERVICE)
    admission = world.all.admit(7, 3, ACROSS, WAYS, programs=PROGRAMS)
    spec = server_spec(7, layout, request_of(tmp_path), tmp_path / "log", admission)
    assert spec
    assert (spec.host, spec.who, spec.serves, spec.index) == ("u3h2", "the optimizer node", True, 3)
    *argv, description = spec.argv
    assert argv[-2:] == ["-m", "workloads.luwu.service"]
    settings = read(NodeSettings, description)
    assert settings.listen == service_address(7, layout) == ("10.0.3.2", 30507)
    assert settings.hosts == ("u1h1", "u1h2", "u2h1")
    assert (settings.tree.job, settings.tree.generation, settings.tree.slots) == (7, 3, 512)


def test_a_layout_without_a_service_has_no_process(tmp_path: Path) -> None:
    layout = Layout("inc", ((1, 1),), "packets", (3, 1))
    assert server_spec(1, layout, request_of(tmp_path), tmp_path / "log", None) is None
