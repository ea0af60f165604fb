"""ALEPH: workers in clusters with a head each, which aggregates for its cluster, and a parameter server that
aggregates the heads' sums.
"""

from testbed.systems.aleph.system import Aleph, AlephMwcha, AlephServers

SYSTEMS = (Aleph(), AlephMwcha(), AlephServers())
