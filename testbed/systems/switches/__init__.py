"""Trees over switches only: across units one unit's switch is the top."""

from testbed.systems.switches.system import Switches

SYSTEMS = (Switches(),)
