"""The pool of processes that `testbed reproduce` works with."""

from __future__ import annotations

import os
import time

import pytest

from reproductions.pool import Pool
from testbed.errors import RequestError, TestbedError


def work(piece: int, given: str) -> str:
    if piece == 7:
        raise RequestError("seven is not accepted")
    if piece == 13:
        os._exit(13)
    if piece == 600:
        time.sleep(600)
    return f"{given}{piece}"


def test_all_pieces_come_back() -> None:
    with Pool[int, str](work, ("n",), 2) as pool:
        assert dict(pool.results(range(6))) == {n: f"n{n}" for n in range(6)}


def test_an_error_names_its_piece_and_keeps_its_code() -> None:
    with (
        Pool[int, str](work, ("n",), 2) as pool,
        pytest.raises(RequestError, match=r"^7: seven is not accepted$"),
    ):
        list(pool.results([1, 7, 2]))


def test_a_process_that_ends_is_not_waited_for() -> None:
    with Pool[int, str](work, ("n",), 2) as pool, pytest.raises(TestbedError, match=r"^13: .* exit code 13$"):
        list(pool.results([13]))


def test_leaving_the_block_ends_what_runs() -> None:
    began = time.monotonic()
    with Pool[int, str](work, ("n",), 2) as pool:
        results = pool.results([600, 1])
        assert next(results) == (1, "n1")
    assert time.monotonic() - began < 500, "the other piece takes 600 s"
