"""A worker's requests of an optimizer node, as the verdict on its job sees them."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from testbed.telemetry.timelines import CALLED, PULLED, PUSHED, Timeline, read
from tests.unit.luwu_world import small
from workloads.luwu.rates import Rates
from workloads.luwu.seen import PARAMETERS, READS, WRITES, Seen

MODEL = small()
LAYERS = range(len(MODEL.layers))
RATES = Rates(reads=4e6, read_parameters=3e6, write_states=5e6)
DISKS = 2


def done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def iteration(seen: Seen, clipped: bool = False) -> Timeline:
    """Return what an iteration leaves: forward and backward, layer by layer."""
    seen.waited(seen.clear(done()))
    for layer in (*LAYERS, *reversed(LAYERS)):
        seen.waited(seen.pull(layer, done()))
    pushes = [seen.push(layer, done()) for layer in reversed(LAYERS)]
    for each in pushes:
        seen.waited(each)
    if clipped:
        seen.waited(seen.norm(done()))
    seen.waited(seen.step(done(), clipped))
    timeline = read({"timeline": seen.summary()})
    assert timeline is not None
    return timeline


def taken_s(timeline: Timeline, resource: str) -> float:
    return sum(use.busy_ns for use in timeline.declared if use.resource == resource) / 1e9


def test_bytes_go_their_way_and_an_iteration_ends_with_nothing_under_way() -> None:
    timeline = iteration(Seen(MODEL, None, DISKS, True))
    by_kind = {
        kind: sum(each.size_bytes for each in timeline.collectives if each.kind == kind)
        for kind in (PULLED, PUSHED, CALLED)
    }
    elements = sum(layer.used for layer in MODEL.layers)
    assert by_kind == {PULLED: 2 * 2 * elements, PUSHED: 4 * elements, CALLED: 0}
    assert all(each.ready_ns for each in timeline.collectives)
    assert len(timeline.collectives) - 1 in timeline.quiet_rows()
    assert not timeline.declared


def test_a_pull_is_not_quiet_while_gradients_are_under_way() -> None:
    seen = Seen(MODEL, None, DISKS, False)
    under_way: Future[None] = Future()
    seen.push(3, under_way)
    seen.waited(seen.pull(2, done()))
    under_way.set_result(None)
    seen.waited(under_way)
    seen.waited(seen.step(done(), False))
    timeline = read({"timeline": seen.summary()})
    assert timeline is not None
    assert set(timeline.quiet_rows()) == {2}


@pytest.mark.parametrize(
    ("in_step", "clipped", "reads", "writes"),
    [
        (False, False, 2 + 2 + 12, 12 + 2),  # bytes a parameter, as docs/luwu.md has them
        (True, False, 2 + 2 + 4 + 12, 4 + 12 + 2),
        (True, True, 2 + 2 + 4 + 4 + 4 + 12, 4 + 12 + 2),  # the norm for the script, and for the step
    ],
)
def test_disks_take_what_they_move(in_step: bool, clipped: bool, reads: int, writes: int) -> None:
    timeline = iteration(Seen(MODEL, RATES, DISKS, in_step), clipped)
    padded = sum(layer.parameters_bytes for layer in MODEL.layers) / 2
    assert taken_s(timeline, PARAMETERS) == pytest.approx(4 * padded / 3e6 / DISKS, rel=0.2)
    assert taken_s(timeline, READS) == pytest.approx(reads * padded / 4e6 / DISKS, rel=0.2)
    assert taken_s(timeline, WRITES) == pytest.approx(writes * padded / 5e6 / DISKS, rel=0.2)
    behind = {use.resource for use in timeline.declared if use.behind}
    assert behind == {READS, WRITES}
