"""The company that a testbed has on its machine: what programs outside of it take of the cores, and the other
testbeds that run. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """A reading: the seconds of cores that all programs took since the machine's start, those of them that
    this testbed's did, and the testbeds that run.
    """

    at_s: float
    all_s: float
    own_s: float
    testbeds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Company:
    """The cores that programs outside of the testbed took, as a mean, and the other testbeds that ran."""

    cores: float = 0.0
    testbeds: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return what there was; empty where there was nothing."""
        parts = [f"programs outside of this testbed took {self.cores:.2f} cores"] if self.cores else []
        if self.testbeds:
            parts.append(f"other testbeds ran: {', '.join(self.testbeds)}")
        return "; ".join(parts)


def company(before: Spent, after: Spent, name: str) -> Company:
    """Return the company of the testbed of that name between two readings."""
    others_s = (after.all_s - before.all_s) - (after.own_s - before.own_s)
    cores = max(0.0, others_s) / max(after.at_s - before.at_s, 1e-3)
    return Company(cores, tuple(sorted((before.testbeds | after.testbeds) - {name})))
