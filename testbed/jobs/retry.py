"""What is tried again when it fails because a switch ended, which is started again: admissions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from testbed.aggregation.admission import Places
from testbed.errors import RequestError, TestbedError

BACK_WITHIN_S = 30.0
_LOOK_S = 0.05

T = TypeVar("T")


def outliving_switches(
    attempt: Callable[[], T],
    places: Places | None,
    given_up: Callable[[], bool],
    within_s: float = BACK_WITHIN_S,
) -> T:
    """What `attempt` returns. It is made again when a switch ended meanwhile and is back; raises what it
    raised when that takes longer than `within_s`, from the first failure, or is given up.
    """
    deadline: float | None = None
    while True:
        before = places.restarts() if places else 0
        try:
            return attempt()
        except RequestError:
            raise
        except TestbedError:
            if places is None or (before is not None and places.restarts() == before):
                raise  # for another reason
            deadline = deadline or time.monotonic() + within_s
            if time.monotonic() > deadline:
                raise
            while places.restarts() is None:
                if given_up() or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)
