"""`python -m controller`: the controller process. It ends on SIGTERM; the switches go on with what they
hold.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

from controller.api import LASTING, Api
from controller.conductor import Conductor
from controller.kernel_links import follow
from controller.model import model_for
from controller.planes import FastPath, MixedPlane, Plane
from testbed.client import rpc
from testbed.dataplanes.folders import routers
from testbed.errors import HostError, TestbedError
from testbed.topology import addresses
from testbed.topology.model import Topology

PRIORITY = -10  # nice value: its work is short, and all circuits wait for it
SWITCH_INTERVAL_S = 0.0005  # its threads mostly wait for each other's messages


def _let_be() -> None:
    """Turn garbage collection on, but exempt the existing objects: collecting them took 40 to 60 ms at 64
    units of 4 hosts, while circuits waited.
    """
    gc.freeze()
    gc.enable()


def _give_up() -> None:
    """End the process at once, so that its starter restarts it."""
    print("controller: the process that turns optical ports is lost", file=sys.stderr, flush=True)
    os._exit(1)


def main(argv: list[str]) -> int:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(prog="python -m controller", description=__doc__)
    parser.add_argument("--topology", type=Path, required=True, help="JSON file that the daemon wrote")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to serve requests on")
    parser.add_argument(
        "--history",
        type=Path,
        required=True,
        help="JSON lines of reconfigurations, read at start and appended to",
    )
    parser.add_argument("--listen-port", type=int, required=True, help="TCP port on 127.0.0.1 for OpenFlow")
    parser.add_argument(
        "--plane",
        type=Path,
        help="folder of the pinned maps of the fast path; without it flows alone make the circuits",
    )
    parser.add_argument("--bridges", type=Path, help="folder of Open vSwitch's management sockets")
    parser.add_argument("--model", type=Path, help="unix socket at which a user's optical model answers")
    parser.add_argument("--library", help="fail if this Python has another one, ryu or os-ken, than that")
    parser.add_argument("--held", action="store_true", help="gets ready, and begins when standard input ends")
    parser.add_argument("--uid", type=int, help="user who may send requests, besides root")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")

    from controller.adapter import API, LIBRARY, library
    from controller.app import SwitchesApp
    from controller.management import PER_TURN, Management

    if arguments.library not in (None, LIBRARY):
        raise HostError(f"--library {arguments.library}: {sys.executable} has {library()}")
    if arguments.held:
        sys.stdin.buffer.read()
    topology = Topology.from_json(arguments.topology.read_text())
    plane: Plane | None = None
    if arguments.plane:
        from testbed.dataplanes.xdp.plane import open_pinned
        from testbed.dataplanes.xdp.port_turner import Turner

        pinned = open_pinned(
            arguments.plane,
            {
                addresses.oxc_port_number(unit.index, port): addresses.oxc_device(unit.index, port)
                for unit in topology.units
                for port in range(1, unit.optical_ports + 1)
            },
        )
        plane = MixedPlane(FastPath(pinned, Turner(pinned, _give_up)), routers(topology))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with contextlib.suppress(PermissionError):  # if not allowed, a busy machine may delay it
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    gc.disable()
    management: Management | None = None
    if arguments.bridges:
        management = Management(arguments.bridges / f"{addresses.OXC_BRIDGE}.mgmt")

    def ready() -> None:
        if management and len(topology.optical_ports) > PER_TURN:
            management.open(len(topology.optical_ports))
        _let_be()

    model = model_for(topology, arguments.model)
    conductor = Conductor(topology, plane, arguments.history, ready, model)
    conductor.begin()

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())

    SwitchesApp.conductor = conductor
    SwitchesApp.management = management
    API.listen_and_run("controller.app", "127.0.0.1", arguments.listen_port)
    threading.Thread(target=conductor.settle_overdue, args=(ended,), name="overdue", daemon=True).start()
    threading.Thread(target=conductor.follow_links, args=(ended,), name="links", daemon=True).start()
    following = (conductor.ends.devices, partial(conductor.without_carrier, "kernel"), ended)
    threading.Thread(target=follow, args=following, name="kernel-links", daemon=True).start()
    with rpc.serve(arguments.socket, Api(conductor, library()), arguments.uid, LASTING):
        ended.wait()
        conductor.finish()
    logging.shutdown()
    os._exit(0)  # skip waiting for os-ken's threads, which block in recv and accept


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TestbedError as error:
        print(f"controller: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
