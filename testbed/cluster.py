"""`testbed cluster`: prints how each method would cluster a job's workers below heads, and the time that
links allow; starts nothing.
"""

from __future__ import annotations

import json

from testbed.client import environment


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.aggregation.site import racks_of
    from testbed.client.caller import Caller
    from testbed.client.single_run import Once
    from testbed.errors import RequestError
    from testbed.jobs.placement import parse_place, place_workers
    from testbed.plugins.registry import systems
    from testbed.topology import addresses
    from testbed.up import topology_of_config

    clustering = {name: system for name, system in systems().items() if system.clusterer is not None}
    first = next(iter(clustering), None)
    parser = environment.Parser(
        prog="testbed cluster",
        description="Print how a job's workers would be clustered below heads, by each method of a system, "
        "and the time that an iteration's gradients take on the links alone. Nothing is started.",
    )
    parser.add_argument(
        "--config", default="default", metavar="FILE", help="a configuration, as for `testbed up` (default)"
    )
    parser.add_argument(
        "--place",
        action=Once,
        metavar="UNIT:WORKERS,...",
        help="the workers' units, as for `testbed run` (the first gpu unit)",
    )
    parser.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="HOST",
        help="a parameter server's host; may be repeated",
    )
    parser.add_argument("--sync", default=first, metavar="NAME", help=f"the system ({first})")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    for system in clustering.values():
        if system.clusterer is not None:
            system.clusterer.options(parser)
    options = parser.parse_args(argv)
    if options.sync not in clustering:
        raise RequestError(
            f"--sync {options.sync!r}: it clusters no workers; accepted: {', '.join(clustering)}"
        )
    topology = topology_of_config(options.config, Caller.of_this_process())
    named = {addresses.host_name(*host): host for host in topology.hosts}
    if missing := [name for name in options.server if name not in named]:
        raise RequestError(f"--server {missing[0]}: no such host; there are {', '.join(named)}")
    servers = [named[name] for name in options.server]
    racks = racks_of(topology)
    gpu = next((rack for rack in racks if rack.kind == "gpu"), None)
    if options.place is None and gpu is not None:
        free = [host for host in gpu.members() if host not in servers]
        workers = place_workers(racks, servers, [(addresses.tor_dpid(gpu.unit), len(free))])
    else:
        workers = place_workers(racks, servers, options.place and parse_place(options.place))
    clusterer = clustering[options.sync].clusterer
    assert clusterer is not None
    report = clusterer.report(topology, workers, servers, options)
    print(json.dumps(report, indent=2) if options.json else "\n".join(clusterer.lines(report)))
    return 0


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
