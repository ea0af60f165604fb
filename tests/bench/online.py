"""A bound for every policy that does not know the future: instances of Table I's limits that begin alike.

`python -m tests.bench.online [--json FILE] [--into FILE]`. Four jobs arrive in slot 0 at a unit with four INC
places. With probability one half nothing more arrives; else the longest job that Table I draws arrives at
that unit, in slot 1, 2, ... or `last`, each equally likely. Nothing here can fail.

Until it arrives, a policy does the same in all instances. What counts is the slot k from which the four hold
all places:

- All four use INC, the last from slot k on. Without a long job they end k slots late. A long job that arrives
  after slot k finds no place before the first of the four ends, or uses its PS, whose update follows the last
  byte.
- One of the four uses its PS. Without a long job they end with its update, and a long job may find a place.

The least mean over k of CT-BTI over the optimum with hindsight is a lower bound for every policy, and for
every mixture of policies.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.scheduling.model import Job
from testbed.systems.p4inc.policies.catalogue import TITLES, make
from testbed.systems.p4inc.simulator.fluid import simulate
from testbed.systems.p4inc.simulator.settings import SETTINGS
from tests.bench.host import facts
from tests.bench.tables import publish, table

SETTING = SETTINGS["table1"]
SLOT_S = SETTING.slot_s
WORKERS = 16
POLICIES = ("inc-fcfs", "inc-tw", "inc-tw+")


@dataclass(frozen=True, slots=True)
class Family:
    """Instances in which the four take `short` slots with INC at a server's rate, the fifth takes `long`, and
    the fifth arrives in slot `last` at the latest.
    """

    short: int
    long: int
    last: int

    def job(self, id_: int, slots: int, arrival: int) -> Job:
        """Return a job in unit 0 with its PS in unit 1. It fills its last slot but for a ten-thousandth."""
        gigabits = slots * SLOT_S * SETTING.host_gbps * (1 - 1e-4)
        return Job(id_, ((0, WORKERS),), 1, gigabits, self.update_s(slots), arrival)

    @staticmethod
    def update_s(slots: int) -> float:
        return slots * SLOT_S * SETTING.host_gbps * (1 - 1e-4) / 8 / SETTING.update_gbytes_per_s

    def alone(self) -> tuple[tuple[Job, ...], float]:
        """Return the four jobs, and their optimal CT-BTI in seconds."""
        return tuple(self.job(number, self.short, 0) for number in range(SETTING.inc)), self.short * SLOT_S

    def with_long(self, slot: int) -> tuple[tuple[Job, ...], float]:
        """Return the five jobs, and the CT-BTI of a schedule that knows of the fifth: one of the four uses
        its PS and so frees a place.
        """
        jobs = (*self.alone()[0], self.job(SETTING.inc, self.long, slot))
        return jobs, max((slot + self.long) * SLOT_S, self.short * SLOT_S + self.update_s(self.short))

    def least_mean(self) -> float:
        """Return the mean of CT-BTI over the optimum, less 1, for the best k."""
        alone_s = self.alone()[1]
        means = [0.5 * self.update_s(self.short) / alone_s]  # one of the four uses its PS
        for k in range(self.last + 1):
            late = []
            for slot in range(k + 1, self.last + 1):
                with_inc_s = (max(self.short, slot) + self.long) * SLOT_S
                with_ps_s = (slot + self.long) * SLOT_S + self.update_s(self.long)
                late.append(min(with_inc_s, with_ps_s) / self.with_long(slot)[1] - 1)
            means.append(0.5 * k * SLOT_S / alone_s + 0.5 * math.fsum(late) / self.last)
        return min(means)

    def reached(self, name: str) -> float:
        """Return a policy's weighted mean of CT-BTI over the optimum, less 1."""
        cases = [(0.5, *self.alone())]
        cases += [(0.5 / self.last, *self.with_long(slot)) for slot in range(1, self.last + 1)]
        shares = []
        for weight, jobs, best_s in cases:
            outcome = simulate(SETTING.limits, jobs, make(name), SETTING.initial)
            shares.append(weight * (outcome.ct_bti_s / best_s - 1))
        return math.fsum(shares)


def slots_of(megabytes: float, iterations: float) -> int:
    """Return the slots that a job of Table I takes with INC."""
    return math.ceil(megabytes * iterations / 125 / SETTING.host_gbps / SLOT_S - 1e-9)


def worst(iterations: float) -> Family:
    """Return the family with the highest bound, among the sizes that Table I draws."""
    least, most = (slots_of(megabytes, iterations) for megabytes in SETTING.megabytes)
    families = (Family(short, most, last) for short in range(least, most + 1) for last in range(1, short))
    return max(families, key=lambda family: (family.least_mean(), -family.short, -family.last))


def measured(counts: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each number of iterations."""
    rows = []
    for iterations in counts:
        family = worst(iterations)
        mine = {name: family.reached(name) for name in POLICIES}
        sizes = {"short": family.short, "long": family.long, "last": family.last}
        rows.append({"iterations": iterations, **sizes, "bound": family.least_mean(), "policies": mine})
    return rows


def shown(figures: dict[str, Any]) -> str:
    """Return the table: a row for each number of iterations."""
    head = ["iterations", "the four", "the fifth", "comes until", "no policy is below"]
    rows = []
    for row in figures["rows"]:
        times = [f"{row[name] * SLOT_S:g} s" for name in ("short", "long", "last")]
        mine = [f"{row['policies'][name]:.1%}" for name in POLICIES]
        rows.append([f"{row['iterations']:g}", *times, f"{row['bound']:.1%}", *mine])
    return table([*head, *(TITLES[name] for name in POLICIES)], rows)


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.online", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    arguments = parser.parse_args(argv)
    rows = measured((10.0, 30.0, 60.0, 100.0))
    figures = {"host": facts(), "rows": rows}
    publish("online", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
