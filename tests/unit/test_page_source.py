"""The page asks a testbed when somebody looks; made-up answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import OwnerError, TestbedError
from testbed.webpage.source import FRESH_S, LinkFlow, PageSource, flows
from tests.unit.page_world import NOW, World, change, ended, link, read, status


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_is_asked_before_somebody_looks_and_little_by_many(world: World) -> None:
    assert world.asked == []
    looks = [world.source.look() for _ in range(5)]
    assert [op for op, _ in world.asked] == ["status", "journal", "history", "crossings"]
    assert looks.count(looks[0]) == 5
    world.now += 1.0
    world.source.look()
    assert len(world.asked) == 8


def test_those_who_waited_for_a_slow_answer_share_it(world: World) -> None:
    answer = world.call

    def slow(*arguments: Any, **named: Any) -> Any:
        world.now += FRESH_S
        return answer(*arguments, **named)

    source = PageSource(world.source._runtime, slow, lambda: world.now)
    first = source.look()
    assert source.look() is first
    assert first.at == NOW, "what is not over ends when it was asked"
    world.now += FRESH_S
    assert source.look() is not first


def test_the_journal_and_the_history_are_read_on_from_where_they_were(world: World) -> None:
    world.source.look()
    world.entries.append(ended(2, 6, "its worker died"))
    world.changes.append(change(2, world.now, added=[("u2o2", "u3o1")], ms=250.0))
    world.later(2)
    look = world.source.look()
    assert [arguments for op, arguments in world.asked if op == "journal"] == [{"after": 0}, {"after": 1}]
    assert [entry.number for entry in look.entries] == [1, 2]
    assert [event.id for event in look.changes] == [1, 2]
    assert (sum(look.totals.dark_counts), look.totals.dark_s) == (2, 0.75)
    assert look.totals.ended == {("done", "yes"): 1, ("failed", "none"): 1}


def test_another_testbed_of_the_name_begins_anew(world: World) -> None:
    world.source.look()
    world.later(2, pid=4343)
    world.entries, world.changes = [], []
    look = world.source.look()
    assert (look.entries, look.changes, look.flows, look.totals.ended) == ((), (), {}, {})


@pytest.mark.parametrize("error", [TestbedError("it goes down"), OwnerError("it is another user's")])
def test_a_testbed_that_does_not_answer_is_said_to(world: World, error: TestbedError) -> None:
    world.status = error
    look = world.source.look()
    assert look.status is None
    assert str(error) in look.why


@pytest.mark.parametrize("wrong", [{"entries": 3}, {"running": [{"id": "seven"}]}])
def test_a_journal_of_another_form_leaves_the_rest(world: World, wrong: dict[str, Any]) -> None:
    """A daemon of another version answers; the page, and its metrics, show all but its journal."""
    answer = world.call

    def other(path: Path, op: str, **named: Any) -> Any:
        said = answer(path, op, **named)
        return {**said, **wrong} if op == "journal" else said

    look = PageSource(world.source._runtime, other, lambda: world.now).look()
    assert look.status is not None
    assert (look.entries, look.running, look.totals.ended) == ((), {}, {})


def test_what_links_carry_is_between_two_looks() -> None:
    before = read(status(links=[link("u1h1", 1_000, 2_000), link("gone")]))
    now = read(status(uptime_s=before.uptime_s + 2, links=[link("u1h1", 5_000, 2_000), link("new", 9)]))
    assert flows(before, now) == {"u1h1": LinkFlow(2_000.0, 0.0)}
    assert flows(None, now) == {}
    assert flows(before, replace(now, uptime_s=before.uptime_s + 31)) == {}, "too long ago to tell"
    assert flows(before, replace(now, uptime_s=before.uptime_s)) == {}
    began_again = read(status(uptime_s=before.uptime_s + 2, links=[link("u1h1", 0, 0)]))
    assert flows(before, began_again) == {"u1h1": LinkFlow(0.0, 0.0)}
