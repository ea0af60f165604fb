"""Run the latest job alone, at half of its host links' rate, summed by its unit's switch."""

from __future__ import annotations

from testbed.scheduling.model import Decision, State


class LastFirst:
    """A policy that continues the running job, or else starts the last one that waits."""

    name = "last-first"

    def decide(self, state: State) -> Decision:
        """Return the rate of the one job that runs, and the unit whose switch sums for it."""
        chosen = next((each for each in state.jobs if each.rate_gbps), state.jobs[-1]).job
        (unit,) = (unit for unit, _ in chosen.workers)
        return Decision({chosen.id: chosen.host_gbps / 2}, inc={chosen.id: unit})
