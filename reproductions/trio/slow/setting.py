"""Section 6.1's servers, models and ways of summing. Owns no run."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.topology import catalogue
from testbed.topology.yaml_text import written

WORKERS = 6
MTU = 4200  # 1,024 gradients of a packet, and headers
POOL_JOBS = 2  # jobs that share a switch's 1,024 slots: a pool of 512 each
AGE_OUT_MS = 10.0
ROUNDS = 2  # exchanges of a sum: the vote on shared exponents, and the blocks
TOP = 1.5  # timeouts that the top of a tree of two levels waits
BATCHES = {"resnet50": 64, "vgg11": 128, "densenet161": 64}
"""Batch of a worker (table 1)."""
PAPER = {"resnet50": 1.72, "vgg11": 1.80, "densenet161": 1.75}
"""SwitchML's iteration time over Trio-ML's at PAPER_P (section 6.2)."""
PAPER_P = 0.16


@dataclass(frozen=True, slots=True)
class ComparedWay:
    """A way of summing: the system (`--sync`) with its options, and its title."""

    sync: str
    title: str
    options: tuple[str, ...]
    colour: str  # of Okabe and Ito's palette
    name: str = ""  # its name in reports, where that is not the system's

    @property
    def key(self) -> str:
        """Return its name in reports."""
        return self.name or self.sync


SWITCHML = ComparedWay("switches", "SwitchML-256", ("--lanes", "256"), "#D55E00")
TRIO = ComparedWay(
    "trio",
    "Trio-ML",
    ("--lanes", "1024", "--window", "819", "--age-out", f"{AGE_OUT_MS:g}"),  # the largest window here
    "#0072B2",
)
WAYS = (SWITCHML, TRIO)
SWITCHML_64 = ComparedWay("switches", "SwitchML-64", ("--lanes", "64"), "#E69F00", "switches-64")
"""SwitchML with its other packet size, run at the highest probability only: the paper says only that it
is worse.
"""


def network(scale: int) -> str:
    """Return the configuration of section 6.1's network (`trio` of the catalogue) at a scale, as YAML."""
    return written({**catalogue.READY["trio"], "mtu": MTU, "scale": scale, "inc": {"jobs": POOL_JOBS}})
