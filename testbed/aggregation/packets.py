"""A job's choices for its packets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.wire.recovery import Recovery


@dataclass(frozen=True, slots=True)
class ProgramChoice:
    """A job's choice for an option that only some data-plane programs have: the option's name, its value, its
    flag on the command line, and `elsewhere`: why the other programs refuse it, with {system} for the name of
    the job's system.
    """

    name: str
    value: float
    flag: str
    elsewhere: str

    def refusal(self, system: str) -> str:
        """Return the line by which a program without the option refuses it."""
        return f"{self.flag} {self.value:g}: {self.elsewhere.format(system=system)}"


@dataclass(frozen=True, slots=True)
class Packets:
    """A job's choices for its packets:

    - `lanes` of a packet; None: as many as fit;
    - `recovery` of lost packets;
    - `choices` for options of programs, and the `usual` values of its system for such options
      (System.usual_options).
    """

    lanes: int | None = None
    recovery: Recovery = Recovery.WINDOW
    choices: tuple[ProgramChoice, ...] = ()
    usual: Mapping[str, float] = field(default_factory=dict, hash=False)

    def value(self, name: str) -> float | None:
        """Return the value of a program's option: the job's choice, or else the usual one; None: neither."""
        return next((each.value for each in self.choices if each.name == name), self.usual.get(name))


AS_USUAL = Packets()
