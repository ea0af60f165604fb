"""P4INC-AOI: gradients are summed at the switches of the workers' units, and across units at a parameter
server's host.
"""

from testbed.systems.p4inc.system import P4inc

SYSTEMS = (P4inc(),)
