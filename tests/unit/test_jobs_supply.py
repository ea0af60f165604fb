"""Admissions that fail while a switch is gone: which are made again, and until when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from testbed.errors import RequestError, TestbedError
from testbed.jobs.supply import outliving_switches


class Switches:
    """Switches as an engine tells of them: restarts so far at each look; the last goes on."""

    def __init__(self, *looks: int | None) -> None:
        self._looks = list(looks)

    def restarts(self) -> int | None:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


def attempts(*outcomes: str | TestbedError) -> tuple[Callable[[], str], Sequence[str | TestbedError]]:
    left = list(outcomes)

    def attempt() -> str:
        ending = left.pop(0)
        if isinstance(ending, TestbedError):
            raise ending
        return ending

    return attempt, left


ENDED = TestbedError("u1's simple_switch ended: signal 9")


def outlive(attempt: Callable[[], str], switches: Any, within_s: float = 10.0, given_up: bool = False) -> str:
    return outliving_switches(attempt, switches, lambda: given_up, within_s)


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param((0, None, None, 1), id="it ended meanwhile"),
        pytest.param((0, 1), id="it is back already"),
        pytest.param((None, None, None, 1), id="it was gone before"),
    ],
)
def test_an_admission_waits_for_a_switch_that_ended(looks: tuple[int | None, ...]) -> None:
    attempt, left = attempts(ENDED, "admitted")
    assert outlive(attempt, Switches(*looks)) == "admitted"
    assert not left


def test_what_failed_for_another_reason_is_not_tried_again() -> None:
    for error, switches in (
        (TestbedError("no light"), Switches(3)),
        (RequestError("no such unit"), Switches(0, 1)),
    ):
        attempt, left = attempts(error, "admitted")
        with pytest.raises(TestbedError, match=str(error)):
            outlive(attempt, switches)
        assert len(left) == 1


def test_a_switch_that_does_not_come_back_is_not_waited_for_longer_than_said() -> None:
    attempt, _ = attempts(ENDED)
    with pytest.raises(TestbedError, match="signal 9"):
        outlive(attempt, Switches(0, None), within_s=0.1)
    attempt, _ = attempts(ENDED)
    with pytest.raises(TestbedError, match="signal 9"):
        outlive(attempt, Switches(0, None), given_up=True)


def test_a_switch_that_ends_at_every_attempt_is_given_up() -> None:
    attempt, left = attempts(ENDED, ENDED, "admitted")
    with pytest.raises(TestbedError, match="signal 9"):
        outlive(attempt, Switches(0, 1, 1, 2), within_s=-1.0)
    assert len(left) == 2
