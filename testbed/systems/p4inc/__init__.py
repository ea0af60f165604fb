"""P4INC-AOI: the switches of the workers' units sum gradients, and across units the host of a parameter
server does.
"""

from testbed.systems.p4inc.system import P4inc

SYSTEMS = (P4inc(),)
