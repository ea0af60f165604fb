"""The observation of a job: faults on its links, and a controller that is away."""

from __future__ import annotations

from testbed.errors import TestbedError
from testbed.jobs.observation import faults_in_words
from testbed.jobs.surroundings import Surroundings


def test_faults_in_words_by_link_and_direction() -> None:
    states = [
        {"link": "u1h1", "direction": "up", "loss": 0.1, "duplicate": 0.0},
        {"link": "u1h1", "direction": "both ways", "delay": "5ms"},
    ]
    assert faults_in_words(states) == {
        ("u1h1", "up"): "u1h1 up loss 10%",
        ("u1h1", "both ways delay"): "u1h1 both ways delay 5ms",
    }


def test_a_controller_that_is_away_is_said_and_not_passed_over() -> None:
    def away(op: str, **_: object) -> object:
        raise TestbedError("the controller is away")

    around = Surroundings("h", (1, 2), False, away, list)
    scene = around.look({})
    network = around.network(scene, scene)
    assert network.unknown == "the controller is away"
    assert network.stretches == ()
