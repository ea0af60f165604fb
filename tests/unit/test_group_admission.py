"""Groups of a job's workers at the places that sum: trees, slots, members and rings of their own, beside the
job's; with places in memory.
"""

from __future__ import annotations

import contextlib

import pytest

from testbed.aggregation import admission
from testbed.aggregation.admission import Places
from testbed.aggregation.entries import Role, Sender
from testbed.aggregation.forest import Forest, Node, Tree
from testbed.aggregation.grants import Admission, Group
from testbed.aggregation.segments import NoRoomError
from testbed.errors import RequestError, TestbedError
from testbed.topology.places import Host, Place
from tests.forests import p4inc
from tests.unit.test_admission import WAYS, World

WORKERS: tuple[Host, ...] = ((1, 1), (1, 2), (2, 1), (2, 2))
JOB = p4inc(WORKERS, (3, 2))
TWO_TREES = Forest(WORKERS[:2], (Tree(Node(Place(1), (0, 1))),) * 2)


@pytest.fixture
def world() -> World:
    made = World(jobs=4)
    made.all.admit(7, 3, JOB, WAYS)
    return made


def of(*ranks: int) -> Group:
    return Group(ranks, tuple(40_000 + rank for rank in ranks))


def admit(places: Places, group: Group, generation: int = 9) -> Admission:
    hosts = [WORKERS[rank] for rank in group.ranks]
    units = {unit for unit, _ in hosts}
    forest = p4inc(hosts, (3, 2) if len(units) > 1 else None)
    return places.admit_group(7, generation, forest, group, WAYS if len(units) > 1 else ())


def fill(places: Places, group: Group) -> list[Admission]:
    """Admit the group again and again, while there is room."""
    held: list[Admission] = []
    with contextlib.suppress(NoRoomError):
        while True:
            held.append(admit(places, group, 50 + len(held)))
    return held


def test_a_group_in_one_unit_has_a_tree_that_its_members_alone_contribute_to(world: World) -> None:
    admission = admit(world.all, of(2, 3))
    entry = world.tors[2].entries[7, 1]
    assert (entry.role, entry.workers, entry.places, entry.generation) == (Role.TOP, 0b1100, 0, 9)
    assert (entry.base, entry.size) == (1024, 85), "a sixth of what is kept for groups, behind the jobs'"
    assert world.tors[2].groups[7, 1] == ["u2-h1", "u2-h2"]
    assert (7, 1) not in world.tors[1].entries
    assert world.tors[2].senders == {1: Sender(7, 2), 2: Sender(7, 3)}, "as the job's workers, still"
    assert world.hosts.groups == {
        ((2, 1), 1): (9, [1024], 85, 40_002),
        ((2, 2), 1): (9, [1024], 85, 40_003),
    }
    settings = admission.worker_env(1)
    assert (settings.worker, settings.sender, settings.workers) == (1, 3, 2)
    assert (settings.first_tree, settings.generation, settings.slots) == (1, 9, 85)
    assert (settings.trees[0].address, settings.trees[0].slot_base) == ("10.0.2.254", 1024)


def test_a_group_across_units_is_summed_as_its_job_is(world: World) -> None:
    admit(world.all, of(1, 3))
    first, second = (world.tors[unit].entries[7, 1] for unit in (1, 2))
    top = world.hosts.places[3, 2].entries[7, 1]
    assert [(entry.workers, entry.number, entry.role) for entry in (first, second)] == [
        (0b0010, 1, Role.INNER),
        (0b1000, 3, Role.INNER),
    ]
    assert (top.workers, top.places, top.role) == (0, 0b1010, Role.TOP)
    assert world.tors[1].groups[7, 1] == ["u1-h2", "u1-o1"]
    assert world.all.occupancy() == {Place(1): 1, Place(2): 1, Place(3, 2): 1}, "it is no job of its own"


def test_groups_of_a_mesh_share_nothing(world: World) -> None:
    held = [admit(world.all, of(*ranks), 9 + at) for at, ranks in enumerate(((0, 1), (2, 3), (0, 2), (1, 3)))]
    assert [each.first for each in held] == [1, 2, 3, 4]
    for tor in world.tors.values():
        slots = [slot for each in tor.entries.values() for slot in range(each.base, each.base + each.size)]
        assert len(slots) == len(set(slots))
    assert {each.first for each in world.all.groups(7)} == {1, 2, 3, 4}


def test_a_group_that_ends_leaves_its_job_and_other_groups_alone(world: World) -> None:
    ending = admit(world.all, of(0, 1))
    other = admit(world.all, of(2, 3))
    before = dict(world.tors[2].entries), dict(world.hosts.rings)
    world.all.release_group(ending)
    assert (7, 1) not in world.tors[1].entries
    assert (dict(world.tors[2].entries), dict(world.hosts.rings)) == before
    assert {first for _, first in world.hosts.groups} == {other.first}
    assert world.tors[1].senders == {1: Sender(7, 0), 2: Sender(7, 1)}
    again = admit(world.all, of(0, 1))
    assert again.first == ending.first
    world.all.release_group(ending)  # nothing: it is gone, and its trees are another's
    assert world.tors[1].entries[7, 1].generation == again.generation
    world.all.release(7)
    assert world.holds_nothing()


def test_the_end_of_a_job_is_that_of_its_groups(world: World) -> None:
    for ranks in ((0, 1), (1, 3)):
        admit(world.all, of(*ranks))
    world.all.release(7)
    assert world.holds_nothing()
    with pytest.raises(RequestError, match=r"^job 7 is summed at no place$"):
        admit(world.all, of(0, 1))


def test_a_group_made_again_a_hundred_times_leaves_no_slots(world: World) -> None:
    for turn in range(100):
        world.all.release_group(admit(world.all, of(0, 2), 10 + turn))
    world.all.release(7)
    assert world.holds_nothing()


def test_a_group_has_less_where_there_is_less_and_then_nothing(world: World) -> None:
    held = [admit(world.all, of(0, 1), 9 + turn) for turn in range(6)]
    assert [each.grant.size for each in held] == [85] * 6, "all that is kept for groups"
    world.all.release_group(held[1])
    assert [admit(world.all, of(0, 1), 20 + turn).grant.size for turn in range(1)] == [85]
    world.all.release_group(held[3])
    assert world.all.admit_group(7, 30, TWO_TREES, of(0, 1)).grant.size == 42
    before = world.all.occupancy(), dict(world.tors[1].entries), dict(world.hosts.groups)
    with pytest.raises(
        NoRoomError, match=r"^u1: no 42 of its 512 slots for groups in a row are free: job 7 \(509 slots\)"
    ):
        admit(world.all, of(0, 1), 31)
    assert (world.all.occupancy(), dict(world.tors[1].entries), dict(world.hosts.groups)) == before


def test_groups_keep_no_job_out_that_the_configuration_promises() -> None:
    """Groups take what there is; then the jobs of `inc.jobs` come, and each has its whole share."""
    world = World(jobs=4, units=[{"hosts": 5}, {"hosts": 5}, {"hosts": 2}])
    world.all.admit(7, 3, JOB, WAYS)
    held = fill(world.all, of(0, 1, 2, 3))
    assert len(held) == 6
    held = [
        world.all.admit(8 + at, 5 + at, p4inc([(1, 3 + at), (2, 3 + at)], (3, 2)), WAYS) for at in range(3)
    ]
    assert [each.grant.size for each in held] == [256] * 3


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("_MOST_AT_A_SWITCH", "trees at a switch"),
        ("_MOST_ENTRIES", "entries at switches"),
        ("_MOST_RINGS", "rings for results"),
        ("_MOST_RING_MIB", "MiB of rings for results"),
    ],
)
def test_groups_leave_the_tables_of_data_planes_to_jobs(
    world: World, limit: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, limit, 2)
    fill(world.all, of(0, 1))
    with pytest.raises(NoRoomError, match=rf"^groups have as many {says} as they may, 2$"):
        admit(world.all, of(0, 1))
    monkeypatch.undo()
    assert {tree for _, tree in world.tors[1].entries} <= {0, 1, 2}, "refused before a place is told"
    world.all.release(7)
    assert world.holds_nothing()


def test_groups_take_memory_for_rings_by_what_their_results_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring has 1,024 results of 2,234 gradients and 16 bytes at an MTU of 9000: nearly 9 MiB."""
    monkeypatch.setattr(admission, "_MOST_RING_MIB", 36)
    world = World(jobs=4, mtu=9000)
    world.all.admit(7, 3, JOB, WAYS)
    assert len(fill(world.all, of(0, 1))) == 2
    with pytest.raises(NoRoomError, match=r"^groups have as many MiB of rings for results as they may, 36$"):
        admit(world.all, of(2, 3))
    world.all.release(7)
    assert world.holds_nothing()


def test_a_group_of_several_trees_has_them_in_a_row(world: World) -> None:
    several = world.all.admit_group(7, 9, TWO_TREES, of(0, 1))
    assert several.first == 1
    assert world.tors[1].entries[7, 2].workers == 0b11
    assert admit(world.all, of(0, 1), 10).first == 3
    world.all.release_group(several)
    assert admit(world.all, of(0, 1), 11).first == 1, "the lowest that are free in a row"


@pytest.mark.parametrize(
    ("forest", "group", "says"),
    [
        (p4inc(WORKERS[:2]), of(0, 2), "workers 0, 2 are not those of the group's forest"),
        (p4inc(WORKERS[:2]), Group((0, 1), (40_000,)), "workers 0, 1 are not those of the group's forest"),
        (p4inc([(1, 1), (2, 1)], (3, 1)), of(0, 2), "u3h1 is no place that sums for it"),
    ],
)
def test_a_group_has_nothing_that_its_job_has_not(
    world: World, forest: Forest, group: Group, says: str
) -> None:
    before = len(world.log)
    with pytest.raises(RequestError, match=rf"^job 7: {says}$"):
        world.all.admit_group(7, 9, forest, group)
    assert len(world.log) == before


@pytest.mark.parametrize("call", ["set_group", "admit"])
def test_a_place_that_fails_leaves_nothing_of_a_group(world: World, call: str) -> None:
    before = dict(world.tors[1].entries), dict(world.hosts.rings)
    world.tors[2].broken = call
    with pytest.raises(TestbedError, match=f"u2: {call} failed"):
        admit(world.all, of(1, 3))
    world.tors[2].broken = None
    assert (dict(world.tors[1].entries), dict(world.hosts.rings)) == before
    assert not world.hosts.groups
    assert admit(world.all, of(1, 3)).first == 1


def test_circuits_that_change_send_a_groups_results_by_other_ports(world: World) -> None:
    admission = admit(world.all, of(1, 3))
    world.all.reroute(7, [{1: [("u1-o2",)], 2: [], 3: []}], admission.first)
    assert world.tors[1].groups[7, 1] == ["u1-h2", "u1-o2"]
    assert world.tors[1].groups[7, 0] == ["u1-h1", "u1-h2", "u1-o1"], "the job's own are told by themselves"


def test_a_switch_that_starts_again_fails_the_job_once_or_has_its_groups_back(world: World) -> None:
    admit(world.all, of(1, 3))
    world.all.admit(8, 5, p4inc([(1, 3)]))
    assert world.all.restart(2, world.tors[2].restart) == {7: 3}
    assert world.all.restart(1, world.tors[1].restart) == {7: 3, 8: 5}
    within = p4inc([(1, 1), (1, 2)], (2, 3))
    world.all.release(7)
    world.all.admit(7, 3, within, [{1: [("u1-o1",)], 3: [("u3-o1",)], 2: []}])
    world.all.admit_group(7, 9, within, of(0, 1), [{1: [("u1-o1",)], 3: [("u3-o1",)], 2: []}])
    before = dict(world.tors[3].entries)
    assert {tree for _, tree in before} == {0, 1}
    assert world.all.restart(3, world.tors[3].restart) == {}
    assert world.tors[3].entries == before
