"""An optical model: mirrors that move from where they were, lasers that tune, and alignment that drifts.

ocs: {model: docs/examples/mirror_drift.py:MirrorDrift, step_ms: 0.5, drift_ms: 2}

A port's mirror points at the port that it was joined to last, or straight ahead, at its own place. It moves
past all ports between that one and its new peer. A port's laser has the wavelength of its place, and its
peer's receiver is tuned from the one it had. The longer a mirror has not moved, the longer it is aligned
again.
"""

from __future__ import annotations

from testbed.optics.model import (
    CircuitTurn,
    DarkTime,
    DarkTimes,
    Ends,
    OpticalModel,
    Parameter,
    Quantity,
    Whole,
)


class MirrorDrift(OpticalModel):
    """A change's darkness by the way of its mirrors, the step of its wavelengths, and its ports' history."""

    name = "mirror-drift"
    summary = "mirrors move from their last peer, lasers tune, and alignment drifts"
    parameters = (
        Parameter("settle_ms", Quantity(0, 1000), 2.0, "how long a mirror takes to begin and to end"),
        Parameter("step_ms", Quantity(0, 1000), 0.5, "how long it takes to pass one port", of_ports=True),
        Parameter("wavelengths", Whole(1, 128), 4, "of lasers; a port has that of its place"),
        Parameter("tune_ms", Quantity(0, 1000), 0.2, "how long a receiver takes to tune by one wavelength"),
        Parameter(
            "drift_ms", Quantity(0, 1000), 0.0, "how much longer it is aligned for each minute of rest"
        ),
    )

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Return the darkness of each new circuit: until the slower of its ends is there."""
        aims, moved_s = aims_of(turn)
        times = {}
        for a, b in turn.added:
            ends = [(a, aims.get(a, a), b), (b, aims.get(b, b), a)]
            switch_ms = self.settings["settle_ms"] + max(
                self.settings.of("step_ms", port) * abs(self._place(new) - self._place(old))
                for port, old, new in ends
            )
            lock_ms = max(self._tuning_ms(old, new) for _, old, new in ends)
            rest_s = max(turn.at_s - moved_s.get(port, turn.at_s) for port, _, _ in ends)
            lock_ms += self.settings["drift_ms"] * min(rest_s, 3600.0) / 60
            times[a, b] = DarkTime.of_ms(switch_ms, lock_ms)
        return DarkTimes(DarkTime.of_ms(self.settings["settle_ms"]), times)

    def mean_ms(self, plane: str = "") -> float:
        """Return the dark time of a circuit whose mirrors move by a third of all ports, as between two at
        random.
        """
        return float(self.settings["settle_ms"] + self.settings["step_ms"] * len(self.ports) / 3)

    def _place(self, port: str) -> int:
        return list(self.ports).index(port)

    def _tuning_ms(self, old: str, new: str) -> float:
        count = self.settings["wavelengths"]
        steps = abs(self._place(new) % count - self._place(old) % count)
        return float(self.settings["tune_ms"] * steps)


def aims_of(turn: CircuitTurn) -> tuple[dict[str, str], dict[str, float]]:
    """Return the port at which each mirror points before a change, and when it moved there, of those that
    moved.
    """
    aims: dict[str, str] = {}
    moved_s: dict[str, float] = {}

    def aim(circuit: Ends) -> None:
        a, b = circuit
        aims.update({a: b, b: a})

    for past in turn.history:
        for circuit in (*past.removed, *past.added):
            aim(circuit)
        moved_s.update({port: past.at_s for circuit in past.added for port in circuit})
    for circuit in turn.before:
        aim(circuit)
    return aims, moved_s
