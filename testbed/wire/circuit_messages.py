"""The messages between a worker that asks for circuits while its job runs, and the testbed
(workloads/circuits.py, testbed/jobs/circuit_desk.py). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitAsk:
    """A worker's message: ask for `circuits` under a `key`, or `release` what it asked for under that key.

    Circuits are pairs of units or of optical ports. All `members`, by rank, ask under the same key; none is
    answered before the last has asked. With `ahead` it is asked before the circuits are needed, so that
    circuits which its worker still uses are no mistake. `wait_s`: how long to wait for circuits that others
    use.
    """

    key: str
    release: bool = False
    circuits: tuple[tuple[str, str], ...] = ()
    members: tuple[int, ...] = ()
    ahead: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitAnswer:
    """The answer to a worker: the circuits between optical ports that it now has, or `why` it gets none
    (`is_busy`: because others use them). With `is_wanted` it is no answer: others wait for the circuits of
    this key.

    `is_changed`: whether circuits were changed for it; then `dark_ms` is the measured dark time of this
    change (None: no light was measured), else 0. `waited_ms`: the time from the last member's request to the
    answer.
    """

    key: str
    why: str | None = None
    circuits: tuple[tuple[str, str], ...] = ()
    is_changed: bool = False
    dark_ms: float | None = 0.0
    waited_ms: float = 0.0
    is_busy: bool = False
    is_wanted: bool = False
