"""The compiled endpoint where others are ahead by ticks: a result that is replaced before it was read, or
while it is read, is never believed, and its worker is told.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed import native
from testbed.wire import mapping, spec
from testbed.wire.endpoint import Event
from tests.unit.endpoint_wire import DATA_SLOTS, DONE, OVERTAKEN, Rack, rack
from workloads import endpoint
from workloads.endpoint import Endpoint, OvertakenError

ROOT = Path(__file__).resolve().parents[2]
WRAPPED = ("lanes_decode", "lanes_swap", "memcpy")
VOTE = mapping.FIRST_VOTE
ONES = np.ones(spec.LANES, np.float32)

Plant = Callable[[Callable[[], None]], None]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An endpoint that calls what is planted while it reads a result."""
    made = tmp_path_factory.mktemp("planted") / "endpoint.so"
    sources = [*(ROOT / "workloads" / "native").glob("*.c"), Path(__file__).with_name("planted.c")]
    argv = ["cc", "-shared", "-fPIC", "-O1", "-fno-builtin-memcpy", "-fno-strict-aliasing"]
    argv += [f"-Wl,--wrap={name}" for name in WRAPPED]
    argv += [f'-D{native.MACRO}="{native.ENDPOINT.digest()}"']
    subprocess.run([*argv, *sources, "-o", made, "-lm"], check=True, timeout=60)
    return made


@pytest.fixture
def plant(library: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Have something happen once, the next time that an endpoint reads a result."""
    monkeypatch.setattr(endpoint, "_LIBRARY", library)
    hook = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "planted")
    kept: list[object] = []

    def planted(doing: Callable[[], None]) -> None:
        @ctypes.CFUNCTYPE(None)
        def once() -> None:
            hook.value = None
            doing()

        kept.append(once)
        hook.value = ctypes.cast(once, ctypes.c_void_p).value

    hook.value = None
    return planted


def until_pushed(network: Rack, fragment: int) -> None:
    (end, *_) = network.ends
    while fragment not in end.pushes:
        network.step(end)
        network.wait_for_pushes(end)


def next_event(network: Rack) -> int:
    """Return the first worker's next event that is no expired timer, which on busy cores may come first."""
    while (event := network.step(network.ends[0])[0]) == Event.QUIET:
        pass
    return event


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("by", [0, DATA_SLOTS])
def test_a_result_that_is_replaced_while_it_is_read_is_not_believed(by: int, raw: bool, plant: Plant) -> None:
    """A later result replaces it; a repetition of itself leaves the ring alone."""
    with rack(2, absent=[1]) as network:
        network.vote_for(1, ONES, raw=raw)
        network.submit(network.ends[0], ONES.copy(), raw)
        until_pushed(network, 0)
        plant(lambda: network.result_for(0, tree=0, fragment=by))
        network.result_for(0, tree=0, fragment=0)
        event = next_event(network)
    assert network.wrong == []
    assert event == (OVERTAKEN if by else DONE)


def test_a_vote_that_is_replaced_while_it_is_read_is_not_believed(plant: Plant) -> None:
    with rack(2, absent=[1]) as network:
        network.vote_for(1, ONES)
        network.submit(network.ends[0], ONES.copy())
        plant(lambda: network.result_for(0, tree=0, fragment=VOTE + mapping.VOTE_SLOTS))
        event = next_event(network)
        pushes = network.ends[0].pushes
    assert network.wrong == []
    assert event == OVERTAKEN
    assert set(pushes) == {VOTE}, "nothing by a scale that may not be one"


@pytest.mark.parametrize("fragment", [DATA_SLOTS, VOTE + mapping.VOTE_SLOTS])
def test_a_worker_whose_result_is_gone_is_told_and_does_not_wait_for_it(fragment: int) -> None:
    """So is every vector after it; what was summed before it is not lost."""
    with rack(2, absent=[1]) as network:
        network.vote_for(1, ONES)
        for _ in range(3):
            network.submit(network.ends[0], ONES.copy())
        until_pushed(network, 0)
        network.result_for(0, tree=0, fragment=0)
        assert next_event(network) == DONE
        network.vote_for(1, ONES, number=1)
        if fragment == DATA_SLOTS:
            until_pushed(network, 1)
        network.result_for(0, tree=0, fragment=fragment + 1)
        assert [next_event(network) for _ in range(2)] == [OVERTAKEN] * 2
    assert network.wrong == []


def test_what_a_worker_says_of_it() -> None:
    worker = Endpoint.__new__(Endpoint)
    worker._job, worker._worker, worker._workers, worker._broken = 5, 1, 3, None
    error = worker._explained(Event.OVERTAKEN, 0, 0, ONES.size)
    assert isinstance(error, OvertakenError)
    assert worker._broken is error
    assert str(error) == (
        "job 5: the others went on without worker 1 for longer than results are kept: those that it needs "
        "were replaced"
    )
