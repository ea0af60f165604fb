"""The ALEPH paper's figures: sections 3.1 and 6.3 on a running testbed, section 6.2 on veth, section 6.4 by
simulation.
"""

from __future__ import annotations

from reproductions.aleph.live import figure as live
from reproductions.aleph.micro import figure as micro
from reproductions.aleph.simulated import figure as simulated

FIGURES = (*live.EXPERIMENTS, *micro.EXPERIMENTS, *simulated.EXPERIMENTS)
