"""`testbed up`: the main process, which holds the testbed's name; the testbed ends when it ends.

It stays in the host's namespaces, and there only holds the lock, shows progress and passes on requests to
end. The daemon runs below `unshare`; when this process dies, for any reason, the kernel kills all of it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.client.caller import Caller
    from testbed.topology.load import AtUp
    from testbed.topology.model import Topology

TOOLS = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovsdb-tool": "openvswitch-switch",
    "mnexec": "mininet",
}
MODULES = {"mininet": "mininet"}  # modules of Debian's Python


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from dataclasses import replace

    from testbed.client.caller import Caller
    from testbed.client.runtime import DEFAULT_NAME, Runtime
    from testbed.client.screen import Screen
    from testbed.daemon.supervisor import bring_up, bring_up_detached
    from testbed.dataplanes.folders import require
    from testbed.topology.catalogue import READY
    from testbed.topology.model import CONTROLLERS

    does = "Bring a testbed up and keep it until Ctrl-C or `testbed down`."
    parser = environment.Parser(prog="testbed up", description=does)
    parser.add_argument(
        "--config",
        default="default",
        metavar="FILE",
        help="a YAML file, - (YAML from the standard input), FILE.py:CLASS (a FabricTopo of yours), or one "
        f"of {', '.join(READY)}",
    )
    parser.add_argument(
        "--name", default=DEFAULT_NAME, help="the testbed's name; several names run side by side (default)"
    )
    does = "use this scale, not the configuration's: a whole number, or auto: measured, so that cores keep up"
    parser.add_argument("--scale", metavar="N", help=does)
    parser.add_argument("--detach", action="store_true", help="return when it is up, and leave it running")
    does = (
        "let every simple_switch log each packet's processing in the log folder, as `bmv2: {log: true}` does"
    )
    parser.add_argument("--log-packets", action="store_true", help=does)
    parser.add_argument(
        "--controller", choices=CONTROLLERS, help="the library that its OpenFlow controller runs on"
    )
    parser.add_argument(
        "--ends-with",
        type=int,
        metavar="PID",
        help="also end it when the process PID ends, such as a script that uses it",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object once it is up, and everything else on stderr",
    )
    arguments = parser.parse_args(argv)
    runtime = Runtime.of(arguments.name)
    caller = Caller.of_this_process()
    topology = topology_of_config(arguments.config, caller, asked_at_up(arguments.scale))
    if arguments.log_packets:
        topology = replace(topology, bmv2=replace(topology.bmv2, log=True))
    if arguments.controller:
        topology = replace(topology, controller=arguments.controller)
    require_root()
    runtime.require_free()  # before the slow checks; the name is claimed later
    check_tools()
    check_mtu(topology.mtu)
    check_files(topology)
    environment.controller_interpreter(topology.controller)
    check_kernel()
    require(topology)  # last: it may compile a BMv2 program for a minute
    screen = Screen(sys.stderr, sys.stdout) if arguments.json else Screen(sys.stdout)
    if arguments.detach:
        return bring_up_detached(runtime, topology, caller, screen, arguments.ends_with)
    try:
        return bring_up(runtime, topology, caller, screen.show, ends_with=arguments.ends_with)
    finally:
        screen.close()


def asked_at_up(scale: str | None = None) -> AtUp:
    """Return the option `--scale` of a command that brings a testbed up."""
    from testbed.topology.load import AtUp

    return AtUp(int(scale) if scale is not None and scale.isdecimal() else scale)


def topology_of_config(name: str, caller: Caller, at_up: AtUp | None = None) -> Topology:
    """Read a configuration file or call a configuration class, as the caller, and return its topology. With
    `at_up` the scale may be `auto`, which is then measured; that needs root.
    """
    from testbed.emulation.user_topo import topology_of
    from testbed.errors import RequestError
    from testbed.jobs.environment import worker_environment
    from testbed.plugins.user_class import is_users
    from testbed.topology.catalogue import find
    from testbed.topology.load import SHOWN_STDIN, STDIN

    if is_users(name) and not name.endswith((".yaml", ".yml")):
        check_tools()  # Mininet among them
        topology = topology_of(name, caller, worker_environment(os.environ, caller), at_up)
        folder = None
    else:
        with caller.acting():
            topology, folder = find(name, at_up), Path(name).parent.absolute()
    topology = at_measured_scale(topology)
    if topology.ocs.is_usual:
        return topology
    from testbed.emulation.user_model import settled

    try:
        return settled(topology, folder, caller, worker_environment(os.environ, caller))
    except RequestError as error:
        raise RequestError(f"{SHOWN_STDIN if name == str(STDIN) else name}: {error}") from error


def require_root() -> None:
    from testbed.errors import HostError

    if os.geteuid() != 0:
        raise HostError("needs root, for namespaces, network devices and XDP: run it with sudo")


def at_measured_scale(topology: Topology) -> Topology:
    """Return the topology with the scale that this machine's cores keep up with, and print it, if its
    configuration leaves the scale to the machine; else return it as it is.
    """
    from testbed.host_checks.frame_costs import cores_allowed, frame_cost
    from testbed.topology.auto_scale import in_words, with_scale
    from testbed.topology.values import AUTO_SCALE

    if topology.scale != AUTO_SCALE:
        return topology
    require_root()
    check_tools()
    check_mtu(topology.mtu)
    check_kernel()
    cores = cores_allowed()
    cost, is_new = frame_cost(topology.mtu)
    chosen, choice = with_scale(topology, cost.best_us, cores)
    when = "now" if is_new else f"on {time.strftime('%Y-%m-%d', time.localtime(cost.measured_s))}"
    took = f"measured {when}, {cost.best_us:.2g} us each"
    if cost.was_busy:
        took += f"; while the machine was busy: half of the trials took over {cost.middle_us:.2g} us"
    print(f"testbed up: {in_words(choice, cores, took)}", file=sys.stderr, flush=True)
    return chosen


def check_mtu(mtu: int) -> None:
    """Raise HostError if this kernel's XDP cannot receive whole frames of such an MTU, by trying it."""
    from testbed.errors import HostError
    from testbed.host_checks.features import remedy_of
    from testbed.host_checks.kernel import findings
    from testbed.wire.spec import ONE_BUFFER_MTU

    if mtu <= ONE_BUFFER_MTU:
        return
    (finding,) = findings(["jumbo"])
    if not finding.works:
        raise HostError(
            f"mtu: {mtu}; up to {ONE_BUFFER_MTU} is accepted on this host, as {finding.detail}; needed is "
            f"{remedy_of(finding)}"
        )


def check_kernel() -> None:
    """Raise HostError, with a remedy, if this kernel lacks a feature that each testbed needs, by trying
    each.
    """
    from testbed.host_checks.required_kernel import require_kernel

    require_kernel(lambda text: print(f"testbed up: {text}", file=sys.stderr, flush=True))


def check_files(topology: Topology) -> None:
    """Raise HostError if a process may open fewer files than a network of this size needs. Without this
    check, running short raises misleading errors, and often late.
    """
    from testbed.emulation.namespaces import OPEN_FILES, files_allowed
    from testbed.emulation.parts import files_needed, parts
    from testbed.errors import HostError

    allowed, needed = files_allowed(), files_needed(parts(topology))
    if allowed < needed:
        raise HostError(
            f"a process may have {allowed} files open here, and a network of this size takes up to {needed}: "
            f"allow more (ulimit -n {OPEN_FILES})"
        )


def check_tools() -> None:
    """Raise HostError with the names of missing tools and modules."""
    import importlib.util
    import shutil

    from testbed.errors import HostError

    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    lacking += [module for module in MODULES if importlib.util.find_spec(module) is None]
    if lacking:
        packages = " ".join(dict.fromkeys((TOOLS | MODULES)[part] for part in lacking))
        raise HostError(f"{', '.join(lacking)} not installed: apt install {packages}, or make setup")


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
