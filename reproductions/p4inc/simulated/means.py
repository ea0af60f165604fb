"""The runs of a figure of section VII-C, gathered: beside what any sweep tells, the distance of schemes from
the MILP. Pure.
"""

from __future__ import annotations

from reproductions.p4inc.simulated.trials import Measured
from reproductions.sweep import Spread, Sweep

AOI, CT_BTI = "connections", "ct_bti_s"


class BoundedSweep(Sweep[Measured]):
    """Runs by scheme and swept value, of which the MILP may be one."""

    def deviation(self, scheme: str, value: float) -> Spread:
        """Table I's delta as the paper computes it: (its CT-BTI - the MILP's) / its own, by seed."""
        its = [self.run(scheme, value, seed).ct_bti_s for seed in self.seeds]
        best = [self.run("milp", value, seed).ct_bti_s for seed in self.seeds]
        return Spread.of([(own - least) / own for own, least in zip(its, best, strict=True)])

    def excess(self, scheme: str, value: float) -> Spread:
        """Return how far its CT-BTI is above the MILP's proven bound, as a share of the bound, by seed."""
        shares = []
        for seed in self.seeds:
            bound = self.run("milp", value, seed).bound_s
            assert bound is not None
            shares.append(self.run(scheme, value, seed).ct_bti_s / bound - 1)
        return Spread.of(shares)
