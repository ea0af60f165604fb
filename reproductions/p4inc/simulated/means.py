"""The runs of a figure of section VII-C: a sweep that also compares schemes with the MILP. Pure."""

from __future__ import annotations

from reproductions.p4inc.simulated.trials import Measured
from reproductions.sweep import Spread, Sweep

AOI, CT_BTI = "connections", "ct_bti_s"


class BoundedSweep(Sweep[Measured]):
    """Runs by scheme and swept value; the MILP may be one of the schemes."""

    def deviation(self, scheme: str, value: float) -> Spread:
        """Return Table I's delta as the paper computes it, by seed: (CT-BTI of the scheme - the MILP's) /
        CT-BTI of the scheme.
        """
        own = [self.run(scheme, value, seed).ct_bti_s for seed in self.seeds]
        least = [self.run("milp", value, seed).ct_bti_s for seed in self.seeds]
        return Spread.of([(ours - best) / ours for ours, best in zip(own, least, strict=True)])

    def excess(self, scheme: str, value: float) -> Spread:
        """Return by seed how far a scheme's CT-BTI is above the MILP's proven bound, as a share of the
        bound.
        """
        shares = []
        for seed in self.seeds:
            bound = self.run("milp", value, seed).bound_s
            assert bound is not None
            shares.append(self.run(scheme, value, seed).ct_bti_s / bound - 1)
        return Spread.of(shares)
