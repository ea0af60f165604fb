"""An optical model of mirrors that move one after the other: each new circuit is dark for longer than the one
before it.
"""

from __future__ import annotations

from testbed.optics.model import CircuitTurn, DarkTime, DarkTimes, OpticalModel, Parameter, Quantity


class SlowMirrors(OpticalModel):
    """An optical model with one parameter; it computes the dark times of each change."""

    name = "slow-mirrors"
    summary = "circuits are lit one after the other"
    parameters = (Parameter("each_ms", Quantity(0, 1000), 10.0, "how long each circuit takes"),)

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Return each new circuit's dark time."""
        each_ms = float(self.settings["each_ms"])
        times = {
            circuit: DarkTime.of_ms(each_ms * number) for number, circuit in enumerate(sorted(turn.added), 1)
        }
        return DarkTimes(DarkTime.of_ms(each_ms), times)

    def mean_ms(self, plane: str = "") -> float:
        """Return the dark time that policies expect."""
        return float(self.settings["each_ms"])
