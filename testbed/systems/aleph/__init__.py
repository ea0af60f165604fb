"""ALEPH: workers in clusters, whose heads sum for them, and a parameter server that sums the heads."""

from testbed.systems.aleph.system import Aleph, AlephMwcha, AlephServers

SYSTEMS = (Aleph(), AlephMwcha(), AlephServers())
