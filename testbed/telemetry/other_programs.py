"""Other load on the machine: the cores that programs outside a testbed use, and other running
testbeds. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """A reading: the core seconds of all programs since boot, this testbed's part of them, and the testbeds
    that run.
    """

    at_s: float
    all_s: float
    own_s: float
    testbeds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Company:
    """The mean number of cores that programs outside the testbed used, and the other testbeds that ran."""

    cores: float = 0.0
    testbeds: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """A description of the load; empty if there was none."""
        parts = [f"programs outside of this testbed took {self.cores:.2f} cores"] if self.cores else []
        if self.testbeds:
            parts.append(f"other testbeds ran: {', '.join(self.testbeds)}")
        return "; ".join(parts)


def company(before: Spent, after: Spent, name: str) -> Company:
    """Compute the other load on the testbed `name` between two readings."""
    others_s = (after.all_s - before.all_s) - (after.own_s - before.own_s)
    cores = max(0.0, others_s) / max(after.at_s - before.at_s, 1e-3)
    return Company(cores, tuple(sorted((before.testbeds | after.testbeds) - {name})))
