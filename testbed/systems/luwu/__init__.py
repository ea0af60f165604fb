"""LuWu: an optimizer node in the network, which sends parameters and gets gradients that switches sum; a
model of its iterations and of its baselines', on the hardware of the paper.
"""

from testbed.systems.luwu.program import OwnedProgram
from testbed.systems.luwu.system import LuWu

SYSTEMS = (LuWu(),)
PROGRAMS = (OwnedProgram(),)
