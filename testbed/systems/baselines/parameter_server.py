"""A parameter server over TCP (workloads/parameter_server.py)."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.aggregation.site import Site
from testbed.aggregation.system import SERVER_ALWAYS, Layout, Service, Showing, System
from testbed.topology.places import Host
from testbed.wire.transports import SERVER


class ParameterServer(System):
    """All workers push to one process on a host of its own, which adds the gradients."""

    name = "ps"
    summary = "a parameter server process on a host of its own sums, over TCP"
    server = SERVER_ALWAYS
    showing = Showing("parameter server (ps)")

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Place the server, and demand a circuit between its unit and each unit with workers."""
        server = site.server(workers)
        demands = tuple((unit, server[0]) for unit, _ in workers)
        service = Service("workloads.parameter_server", "parameter server")
        return Layout(self.name, tuple(workers), SERVER, server, demands=demands, service=service)
