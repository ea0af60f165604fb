"""LuWu: an optimizer node in the network sends parameters, and receives gradients that switches have summed.
Also a model of its iterations and of its baselines', on the paper's hardware.
"""

from testbed.systems.luwu.program import OwnedProgram
from testbed.systems.luwu.system import LuWu

SYSTEMS = (LuWu(),)
PROGRAMS = (OwnedProgram(),)
