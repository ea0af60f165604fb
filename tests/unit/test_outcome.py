"""The outcome of a sum, a worker's record of them, and what a majority vote makes of one."""

from __future__ import annotations

import importlib.util
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.host import ROOT
from workloads.outcome import Outcome
from workloads.quantiser import NotFiniteError
from workloads.sums import native


def outcome(*by_fragment: int, workers: int = 4, lanes: int = 3) -> Outcome:
    return Outcome(workers, lanes, np.array(by_fragment, np.uint32))


def test_it_names_contributors_and_degraded_fragments() -> None:
    mixed = outcome(4, 2, 4, 3)
    assert (mixed.contributors, mixed.degraded) == (2, 2)
    assert mixed.by_element(11).tolist() == [4, 4, 4, 2, 2, 2, 4, 4, 4, 3, 3]
    whole = Outcome.whole(5)
    assert (whole.contributors, whole.degraded, whole.by_element(7).tolist()) == (5, 0, [5] * 7)


def test_a_record_counts_sums_and_keeps_the_fewest() -> None:
    record = native.Record()
    assert record.summary() == {"degraded_sums": 0, "fewest_contributors": None}
    for each in (outcome(4, 4), outcome(4, 2), outcome(3), outcome(4)):
        record.add(each)
    assert (record.sums, record.degraded, record.fewest) == (4, 2, 2)
    assert record.last is not None
    assert record.last.degraded == 0


def test_a_record_keeps_that_a_fragment_had_no_contributor() -> None:
    record = native.Record()
    for each in (outcome(4, 0), outcome(4, 3), outcome(2)):
        record.add(each)
    assert record.summary() == {"degraded_sums": 3, "fewest_contributors": 0}


def majority_vote() -> Any:
    spec = importlib.util.spec_from_file_location("votes", ROOT / "docs" / "examples" / "majority_vote.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("absent", [(), (1,), (1, 4)])
def test_votes_of_those_who_came_decide(absent: tuple[int, ...]) -> None:
    """Five workers, of whom some are missing in the second fragment of two lanes, eight signs."""
    module, chance = majority_vote(), np.random.default_rng(3)
    given = [chance.standard_normal(23).astype(np.float32) for _ in range(5)]
    submitted: list[np.ndarray] = []
    signs = module.Signs.__new__(module.Signs)
    signs._under_way = deque()
    signs._endpoint = SimpleNamespace(submit_lanes=submitted.append)
    for each in given:
        signs.submit(each)
    present = [[rank for rank in range(5) if at != 1 or rank not in absent] for at in range(3)]
    total = np.zeros(6, np.uint32)
    for at, ranks in enumerate(present):
        for rank in ranks:
            total[2 * at : 2 * at + 2] += submitted[rank][2 * at : 2 * at + 2]
    due = [
        np.sign(np.sum([np.sign(given[rank][8 * at : 8 * at + 8]) for rank in ranks], axis=0)).tolist()
        for at, ranks in enumerate(present)
    ]
    array, lanes = signs._under_way[0]
    lanes[:] = total
    signs._endpoint.finish = lambda: outcome(*map(len, present), workers=5, lanes=2)
    assert signs.finish().degraded == (1 if absent else 0)
    assert [array[8 * at : 8 * at + 8].tolist() for at in range(3)] == due


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_no_vote(bad: float) -> None:
    module = majority_vote()
    submitted: list[np.ndarray] = []
    signs = module.Signs.__new__(module.Signs)
    signs._under_way = deque()
    signs._endpoint = SimpleNamespace(submit_lanes=submitted.append)
    with pytest.raises(NotFiniteError, match="this worker has NaN or infinity in its gradients"):
        signs.submit(np.array([1.0, bad, -2.0], np.float32))
    assert (submitted, len(signs._under_way)) == ([], 0)
