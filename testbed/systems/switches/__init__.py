"""Trees of switches only: across units, the switch of one unit is the top."""

from testbed.systems.switches.system import Switches

SYSTEMS = (Switches(),)
