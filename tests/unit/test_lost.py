"""The remainders that rounding leaves of a sum, as the compiled endpoint hands them back: with the sums they
make the exact ones.
"""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pytest

from testbed.wire import spec
from tests.limits import CALL_S
from tests.unit.endpoint_wire import DONE, QUIET, End, Rack, rack
from workloads import quantiser

LENGTH = 3 * spec.LANES + 55


def summed(network: Rack, given: list[np.ndarray], lost: list[np.ndarray]) -> None:
    """Have the workers of a rack sum a vector in place."""

    def work(end: End) -> None:
        network.submit(end, given[end.number], lost=lost[end.number])
        while (event := network.step(end)[0]) == QUIET:
            pass
        assert event == DONE

    threads = [threading.Thread(target=work, args=(end,)) for end in network.ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CALL_S)
        assert not thread.is_alive()


def loud(workers: int, apart: float) -> list[np.ndarray]:
    """Return vectors of which each second value is so many times larger."""
    chance = np.random.default_rng(workers)
    magnitudes = np.where(np.arange(LENGTH) % 2, 1.0, apart)
    return [(chance.standard_normal(LENGTH) * magnitudes).astype(np.float32) for _ in range(workers)]


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("apart", [1.0, 1e6, 1e10, 1e30])
def test_a_sum_and_what_the_workers_lost_of_it_are_the_exact_sum(apart: float, loss: float) -> None:
    workers = 3
    given = loud(workers, apart)
    values = [each.copy() for each in given]
    due, scales, _ = quantiser.summed([each.copy() for each in given])
    lost = [np.zeros(LENGTH, np.float32) for _ in range(workers)]
    with rack(workers, loss) as network:
        summed(network, given, lost)
        assert network.wrong[:5] == []
    assert all(np.array_equal(each, due) for each in given)
    for at in [*range(0, LENGTH, 37), LENGTH - 1]:
        exact = sum(Fraction(float(each[at])) for each in values)
        missing = sum(Fraction(float(each[at])) for each in lost)
        unit = Fraction(2) ** -scales[at // spec.LANES]
        assert (exact - missing) % unit == 0, "what is left are integers of the scale"
        assert abs(Fraction(float(due[at])) - (exact - missing)) <= abs(exact - missing) / 2**24
        assert all(abs(Fraction(float(each[at]))) <= unit / 2 for each in lost)


def test_a_second_vector_of_it_makes_the_sum_as_near_as_binary32_has_it() -> None:
    given = loud(3, 1e10)
    exact = np.sum([each.astype(np.float64) for each in given], axis=0)
    lost = [np.zeros(LENGTH, np.float32) for _ in range(3)]
    with rack(3) as network:
        summed(network, given, lost)
        summed(network, lost, [np.zeros(LENGTH, np.float32) for _ in range(3)])
    both = given[0] + lost[0]
    small = np.arange(LENGTH) % 2 == 1
    assert np.abs(given[0] - exact)[small].max() > 1, "of the small ones nothing is left"
    np.testing.assert_allclose(both[small], exact[small], rtol=1e-5, atol=1e-5)


def test_vectors_in_their_votes_and_raw_lanes_lose_nothing() -> None:
    given = [np.full(7, 1e-30, np.float32) for _ in range(3)]
    lost = [np.zeros(7, np.float32) for _ in range(3)]
    with rack(3) as network:
        summed(network, given, lost)
    assert not any(each.any() for each in lost)
