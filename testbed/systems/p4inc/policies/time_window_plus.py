"""TW+: this project's own policy, with and without INC. Pure.

TW gives INC to the jobs that save most traffic and starts the others at once. TW+ considers what determines
the end of the last job: a switch's INC places, a unit's optical ports, or one long job. docs/p4inc-aoi.md,
section TW+, has the reasons, docs/studies/p4inc-policies.md the results.
"""

from __future__ import annotations

import math
from operator import attrgetter

from testbed.scheduling.free_capacity import SLACK, Loads
from testbed.scheduling.model import Decision, State
from testbed.systems.p4inc.policies import ahead, circuits
from testbed.systems.p4inc.policies.time_window import TimeWindow
from testbed.systems.p4inc.policies.tw_plus_modes import Modes, Sending, Tuning
from testbed.systems.p4inc.policies.tw_plus_rates import Rates

_ID, _UPDATE_S = attrgetter("progress.job.id"), attrgetter("load.update_s")


class TimeWindowPlus:
    """A policy that computes in each slot the expected end: that of the best schedule of the known jobs. INC
    goes to jobs that would be late with their PS, longest first; the others wait for INC or use their PS,
    whichever ends first. PS jobs get rates that end them in time.

    Where ports of the jobs' units differ in rate, it simulates the known jobs to their end, by its own rule
    and by TW's, and follows the rule that ends first.

    A decision depends on the state alone. `seed` is accepted as by all policies, and not used.
    """

    def __init__(self, inc: bool = True, seed: int = 0, tuning: Tuning | None = None) -> None:
        self._inc = inc
        self._tuning = tuning or Tuning()
        self._loads = Loads()
        self._beside = TimeWindow(inc=inc)

    @property
    def name(self) -> str:
        return "inc-tw+" if self._inc else "noinc-tw+"

    def decide(self, state: State) -> Decision:
        own = self._own(state)
        if not ahead.is_uneven(state):
            return own
        # rates that only aim at an end in time use ports of different rates badly
        end_s = ahead.end_s(state, self._own, self._loads, math.inf)
        other_s = ahead.end_s(state, self._beside.decide, self._loads, end_s)
        return own if other_s >= end_s * (1 - SLACK) else self._beside.decide(state)

    def _own(self, state: State) -> Decision:
        modes = Modes(state, self._tuning, self._loads, self._inc)
        return with_rates(state, modes.sending, modes.end_s, self._tuning)


def with_rates(state: State, sending: list[Sending], end_s: float, tuning: Tuning) -> Decision:
    """Assign the jobs rates by which they end at `end_s`, or as soon after it as the longest of them and the
    ports allow.
    """
    # sort by id, then stably by update: two sorts by plain keys are faster than one by pairs
    sending.sort(key=_ID)
    sending.sort(key=_UPDATE_S, reverse=True)
    rates = Rates(state.limits, state.ports, tuning, sending)
    longest_s = max((entry.least_s for entry in sending), default=0.0)
    rates.give(max(end_s, longest_s, rates.ports_end_s()))
    given = rates.gbps
    for number in range(len(sending)):
        if given:
            break
        rates.give_one(number)  # nothing would run: start the first job that can
        given = rates.gbps
    inc = {}
    for entry in sending:
        unit = entry.load.inc
        if unit is not None and (id_ := entry.progress.job.id) in given:
            inc[id_] = unit
    return Decision(given, inc, circuits.kept(state.ports, rates.circuits, state.limits.ports))
