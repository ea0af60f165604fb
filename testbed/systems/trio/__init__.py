"""Trio-ML: switches sum in block records, and do not wait for stragglers."""

from testbed.systems.trio.program import BlockProgram
from testbed.systems.trio.system import Trio

SYSTEMS = (Trio(),)
PROGRAMS = (BlockProgram(),)
