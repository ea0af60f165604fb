"""Circuits that a policy asks for before a worker's calls: by the desk's real sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.wire.calls import CollectiveKind
from tests.unit.test_circuit_desk import LIMIT_S, World, until
from workloads import call_circuits
from workloads.call_circuits import CallCircuits
from workloads.circuit_policy import Ahead, Call, CircuitPolicy, Circuits, OnDemand

HOSTS = ("u1h1", "u2h1", "u3h1", "u4h1")
SUM = int(CollectiveKind.ALL_REDUCE)
SEND, RECEIVE = 254, 255


class Impossible(OnDemand):
    """Asks for what no unit has ports for."""

    def before(self, call: Call) -> Circuits:
        return (("u1", "u2"), ("u1", "u3"))


@contextmanager
def workers(world: World, policy: type[CircuitPolicy]) -> Iterator[list[CallCircuits]]:
    with world.desk() as clients:
        yield [CallCircuits(policy(), client, rank, HOSTS) for rank, client in enumerate(clients)]


def called(workers: list[CallCircuits], members: tuple[int, ...], kind: int = SUM) -> dict[int, int]:
    """Have all members begin a call, each on a thread; return the calls' numbers, by rank."""
    numbers: dict[int, int] = {}

    def begin(rank: int) -> None:
        numbers[rank] = workers[rank].before_in(members)(kind, 1000, -1)

    threads = [threading.Thread(target=begin, args=(rank,), daemon=True) for rank in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(numbers) == sorted(members)
    return numbers


def end(workers: list[CallCircuits], numbers: dict[int, int]) -> None:
    """Tell of calls' ends as the backend does."""
    for rank, number in numbers.items():
        os.write(workers[rank].fd, number.to_bytes(8, "little"))


def test_a_call_starts_when_its_members_have_come_and_its_circuits_are_lit() -> None:
    world = World()
    with workers(world, OnDemand) as made:
        first = called(made, (0, 2))
        assert ["u1o1", "u3o1"] in world.lit
        assert world.claimed.by_job()
        end(made, first)
        until(lambda: not world.claimed.by_job())
        end(made, called(made, (0, 2)))
        assert world.changes == 1
        assert made[0].counts == {"asked_call": 2, "waited_for_a_change": 1}


def test_a_call_over_other_circuits_waits_for_the_end_of_those_that_use_the_ports() -> None:
    world = World()
    with workers(world, OnDemand) as made:
        first = called(made, (0, 2))
        other = threading.Thread(target=lambda: end(made, called(made, (1, 0))), daemon=True)
        other.start()
        threading.Event().wait(0.1)
        assert other.is_alive()
        end(made, first)
        other.join(LIMIT_S)
        assert ["u1o1", "u2o1"] in world.lit


def test_a_receiver_does_not_wait_and_its_sender_waits_for_it() -> None:
    world = World()
    with workers(world, OnDemand) as made:
        received = made[2].before_in((0, 2))(RECEIVE, 1000, 0)
        assert not world.claimed.by_job()
        sent = made[0].before_in((0, 2))(SEND, 1000, 1)
        assert ["u1o1", "u3o1"] in world.lit
        end(made, {0: sent, 2: received})
        until(lambda: not world.claimed.by_job())


def test_what_follows_is_asked_for_when_a_call_ends_and_given_up_when_others_want_it() -> None:
    world = World()
    with workers(world, Ahead) as made:
        for _ in range(4):
            for members in ((0, 2), (0, 1)):
                end(made, called(made, members))
                until(lambda: not any(each._under_way for each in made))
        assert made[0].counts["asked_ahead"] >= 4
        until(lambda: ["u1o1", "u3o1"] in world.lit and world.claimed.by_job())
        end(made, called(made, (0, 1)))
        assert ["u1o1", "u2o1"] in world.lit, "another call came first"


def test_a_call_without_circuits_goes_on_and_a_refusal_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    with workers(world, Impossible) as made:
        for _ in range(2):
            end(made, called(made, (0, 2)))
        assert made[0].counts == {"asked_call": 1, "went_on_without": 1}
    line = "circuits u1-u2, u1-u3: demands need 2 optical ports of u1; it has 1; calls go on over what is lit"
    assert capfd.readouterr().err.count(line) == 2, "one of each worker"
    monkeypatch.setattr(call_circuits, "WAIT_S", 0.2)
    with workers(World(), OnDemand) as made:
        made[0].before_in((0, 2))(SUM, 1000, -1)
        assert made[0].counts["went_on_without"] == 1, "the other member never came"
