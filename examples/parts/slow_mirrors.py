"""Mirrors that move one after the other: each new circuit is dark for longer than the one before it."""

from __future__ import annotations

from testbed.optics.model import CircuitTurn, DarkTime, DarkTimes, OpticalModel, Parameter, Quantity


class SlowMirrors(OpticalModel):
    """A parameter of the configuration, and the darkness of each change."""

    name = "slow-mirrors"
    summary = "circuits are lit one after the other"
    parameters = (Parameter("each_ms", Quantity(0, 1000), 10.0, "how long each circuit takes"),)

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Return how long each new circuit is dark."""
        each_ms = float(self.settings["each_ms"])
        times = {
            circuit: DarkTime.of_ms(each_ms * number) for number, circuit in enumerate(sorted(turn.added), 1)
        }
        return DarkTimes(DarkTime.of_ms(each_ms), times)

    def mean_ms(self, plane: str = "") -> float:
        """Return the darkness that policies reckon with."""
        return float(self.settings["each_ms"])
