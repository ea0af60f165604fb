"""The protocol as a whole on the reference model: every sum exact and every worker served, whatever the
network does.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from testbed.reference_model.output_ports import Emission
from tests.examples import examples
from tests.vectors.build import SLOTS, Lanes
from tests.vectors.run import Model
from tests.vectors.world import SHAPES, Shape, Weather, World

WEATHERS = st.builds(
    Weather,
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    repeat=st.sampled_from([0.0, 0.1, 0.3]),
    reorders=st.booleans(),
    seed=st.integers(0, 2**32),
    ticks=st.sampled_from([0.0, 0.0, 0.01, 0.1]),
)


@functools.cache
def whole_range(worker: int, fragment: int) -> Lanes:
    """Numbers that wrap around."""
    return np.random.default_rng((worker, fragment)).integers(0, 2**32, 360, dtype=np.uint32)


def model(node: int, ip: str, is_host: bool) -> Model:
    return Model(ip, SLOTS, is_host=is_host)


# a seed does not shrink
@settings(max_examples=examples(60), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.sampled_from((Shape((1,), (None,)), *SHAPES)),
    st.integers(1, 40),
    st.sampled_from([2, 4, 8, 16]),
    WEATHERS,
)
def test_every_sum_is_exact(shape: Shape, fragments: int, size: int, weather: Weather) -> None:
    World(shape, fragments, size, weather, model, whole_range).run()


def test_the_weather_is_bad_enough_to_meet_every_case() -> None:
    shape = Shape((1, 2, 1), (None, None, 1), host=True)
    world = World(shape, 60, 8, Weather(0.2, 0.2, True, 1, ticks=0.02), model, whole_range)
    world.run()
    for verdict in (
        *("aggregated", "completed", "duplicate", "resent", "stale", "result", "forwarded"),
        *("ticked", "tick_late", "late"),
    ):
        assert world.verdicts[verdict] > 0, verdict


AT_SWITCHES = tuple(shape for shape in SHAPES if not shape.host)


@settings(max_examples=examples(60), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.sampled_from(AT_SWITCHES),
    st.integers(1, 60),
    st.sampled_from([2, 4, 8, 16]),
    WEATHERS,
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_every_sum_by_blocks_is_exact(
    shape: Shape, fragments: int, size: int, weather: Weather, sleeps: float
) -> None:
    """And no result is lost that a worker has not taken, however long it sleeps."""
    weather = replace(weather, sleeps=sleeps)
    World(shape, fragments, size, weather, model, whole_range, blocks=True).run()


def test_blocks_meet_every_case() -> None:
    met: set[str] = set()
    for seed in range(4):
        weather = Weather(0.1, 0.2, True, seed, ticks=0.1, sleeps=0.9)
        world = World(Shape((1, 1, 2), (None, 0, 1)), 80, 8, weather, model, whole_range, blocks=True)
        world.run()
        met |= set(world.verdicts)
    cases = {"aggregated", "completed", "duplicate", "resent", "stale", "result", "late"}
    assert met >= cases | {"ticked", "tick_late", "tick_early"}


class Forgetful(Model):
    """Breaks the protocol: counts a repeated contribution again."""

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        for slot in self._slots:
            slot.members &= ~1
        return super().receive(data, port)


def test_a_broken_engine_is_found() -> None:
    def make(node: int, ip: str, is_host: bool) -> Model:
        return Forgetful(ip, SLOTS, is_host=is_host)

    with pytest.raises(AssertionError):
        World(Shape((3,), (None,)), 50, 8, Weather(0.1, 0.3, True, 1), make, whole_range).run()
