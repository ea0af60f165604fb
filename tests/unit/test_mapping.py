"""The tree that each fragment of a job goes by: the pattern, and the compiled endpoint's way through it."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.wire import mapping
from tests.limits import CALL_S

NATIVE = Path(__file__).resolve().parents[2] / "workloads/native"
WEIGHTS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40)
SHIM = """
#include "endpoint.h"
#include <stdlib.h>
static struct endpoint *e;
void opened(uint32_t trees, uint32_t parts, const uint32_t *pattern)
{
    e = calloc(1, sizeof(*e) + trees * sizeof(e->trees[0]));
    e->s.trees = trees;
    e->s.parts = parts;
    e->s.pattern = pattern;
    mapping_open(e);
}
uint64_t number(uint32_t tree, uint64_t fragment) { return over_all(e, &e->trees[tree], fragment); }
uint64_t before(uint32_t tree, uint64_t next) { return given(e, &e->trees[tree], next); }
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("mapping")
    (folder / "shim.c").write_text(SHIM)
    argv = [
        "gcc",
        "-O1",
        "-shared",
        "-fPIC",
        f"-I{NATIVE}",
        "-o",
        "shim.so",
        "shim.c",
        str(NATIVE / "mapping.c"),
    ]
    subprocess.run(argv, cwd=folder, check=True, timeout=CALL_S)
    library = ctypes.CDLL(str(folder / "shim.so"))
    library.opened.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p]
    for name in ("number", "before"):
        getattr(library, name).argtypes = [ctypes.c_uint32, ctypes.c_uint64]
        getattr(library, name).restype = ctypes.c_uint64
    return library


@given(WEIGHTS)
def test_each_tree_has_its_fraction_as_near_as_the_pattern_allows(weights: list[float]) -> None:
    pattern = mapping.pattern(weights)
    counts = np.bincount(pattern, minlength=len(weights))
    assert 1 <= pattern.size <= mapping.MOST_PARTS
    assert counts.min() >= 1
    fractions = np.array(weights) / sum(weights)
    tiny = int((fractions * pattern.size < 1).sum())  # has one part, which others lack
    assert (np.abs(counts - fractions * pattern.size) <= 1 + tiny).all()


@pytest.mark.parametrize(
    ("weights", "counts"),
    [([1.0], [1]), ([1, 1], [1, 1]), ([1, 2], [1, 2]), ([1 / 3, 2 / 3], [1, 2]), ([3, 4, 5], [3, 4, 5])],
)
def test_fractions_that_are_whole_are_kept_exactly(weights: list[float], counts: list[int]) -> None:
    assert np.bincount(mapping.pattern(weights)).tolist() == counts


def test_a_tree_s_fragments_lie_evenly() -> None:
    assert mapping.pattern([1, 1]).tolist() == [0, 1]
    ahead = np.cumsum(mapping.pattern([7, 13, 80]) == 0) - np.arange(1, 101) * 0.07
    assert np.abs(ahead).max() <= 1


@given(WEIGHTS, st.lists(st.integers(0, 3000), max_size=5))
def test_every_fragment_goes_by_exactly_one_tree(
    native: ctypes.CDLL, weights: list[float], sizes: list[int]
) -> None:
    """Whatever the weights, and however many fragments each vector brings."""
    pattern = mapping.pattern(weights)
    native.opened(len(weights), pattern.size, pattern.ctypes.data)
    end, trees, done = 0, range(len(weights)), [0] * len(weights)
    for size in sizes:
        end += size
        given_now = [native.before(tree, end) for tree in trees]
        numbers = [native.number(tree, at) for tree in trees for at in range(done[tree], given_now[tree])]
        assert sorted(numbers) == list(range(end - size, end))
        done = given_now
    for tree in trees:
        assert [int(pattern[native.number(tree, at) % pattern.size]) for at in range(3)] == [tree] * 3
