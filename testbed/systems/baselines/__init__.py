"""The baselines without aggregation in the network: a ring of workers, and a parameter server."""

from testbed.systems.baselines.parameter_server import ParameterServer
from testbed.systems.baselines.ring import Ring

SYSTEMS = (Ring(), ParameterServer())
