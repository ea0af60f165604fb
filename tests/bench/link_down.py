"""The time for which traffic between two units is lost when a link between them goes down, and comes back.

    python -m tests.bench.link_down [--units 4,16,64] [--times N] [--unannounced] [--json FILE]

Needs root. Units of one host stand in a ring of circuits. A host of a unit sends a UDP packet every
millisecond to a host of the next unit. Again and again the request of `testbed link set --down` takes an
optical port of the circuit between them down, in turn the sender's and the receiver's, so that packets then
go all the way round the ring; then the port is set up again. With `--unannounced`, `ip link set` does it to
the optical switch's end of the link: the controller then learns it from Open vSwitch alone. Each packet has
its number, and the time at which it was sent, by the clock that all hosts share.

`lost` is the time from the last packet that arrived before others were lost to the first one that arrived
after the last loss, by the times at which they were sent; 0 if all arrived. `since asked` is the time from
sending the request to the arrival of that first packet by the other way.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from testbed.api.links import LinkControl
from testbed.client.runtime import Runtime
from testbed.topology import addresses
from testbed.topology.units import Unit
from tests.bench.host import ROOT, facts
from tests.bench.reconfiguration import ring
from tests.bench.tables import table
from tests.privileged.commands import pid_of, running

SIZES, TIMES = "4,16,64", 11
PORT, EVERY_S = 5997, 0.001
REST_S, START_S = 1.5, 60.0
LEAD_NS = 50_000_000  # packets sent before the call may be lost in the queues of the link
SENDER, RECEIVER = Unit(1), Unit(2)  # neighbours in every ring
Packet = tuple[int, int, int]  # number, when sent, when it arrived


def send(goal: str) -> None:
    """Send a number and the time again and again, until the process is ended."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        due_s = time.monotonic()
        for number in itertools.count():
            out.sendto(f"{number} {time.monotonic_ns()}".encode(), (goal, PORT))
            due_s = max(due_s + EVERY_S, time.monotonic() - EVERY_S)
            time.sleep(max(0.0, due_s - time.monotonic()))


def receive() -> None:
    """Print each packet's number, and the times at which it was sent and arrived, in nanoseconds."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as arriving:
        arriving.bind(("", PORT))
        while True:
            print(arriving.recv(64).decode(), time.monotonic_ns(), flush=True)


def gap(packets: list[Packet], asked_ns: int, until_ns: int) -> dict[str, float]:
    """Return for how long packets were lost, of those sent between two times, and when the first one after
    the loss arrived, since `asked_ns`; both in milliseconds.
    """
    of_it = sorted(packet for packet in packets if asked_ns - LEAD_NS < packet[1] < until_ns)
    gaps = [(before, after) for before, after in itertools.pairwise(of_it) if after[0] != before[0] + 1]
    if not gaps:
        return {"lost": 0.0, "since_asked": 0.0}
    before, after = gaps[0][0], gaps[-1][1]
    return {"lost": (after[1] - before[1]) / 1e6, "since_asked": (after[2] - asked_ns) / 1e6}


def config(units: int) -> dict[str, Any]:
    return {
        "units": [{"hosts": 1}] * units,
        "optical_ports": 2,
        "scale": 200,
        "ocs": {"switch_ms": 1, "lock_ms": 1, "circuits": ring(units)},
    }


def measured(units: int, times: int, unannounced: bool) -> dict[str, list[dict[str, float]]]:
    """Bring the ring up, and return the losses of each time that a link went down, and came back."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, "ring.yaml"), Path(folder, "packets")
        file.write_text(json.dumps(config(units)))
        with running(str(file)) as testbed, log.open("w") as into:
            hosts = [addresses.host_name(unit, 1) for unit in (SENDER, RECEIVER)]
            module = [sys.executable, "-m", "tests.bench.link_down"]
            argv = [[*module, "--send", addresses.host_ip(RECEIVER, 1)], [*module, "--receive"]]
            processes = [
                subprocess.Popen(
                    [sys.executable, "-m", "testbed.exec", "--name", testbed.name, host, "--", *words],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=into,
                )
                for host, words in zip(hosts, argv, strict=True)
            ]
            try:
                deadline = time.monotonic() + START_S
                while log.stat().st_size < 20_000:  # a few hundred packets
                    if time.monotonic() > deadline:
                        raise SystemExit(f"{units} units: no packets arrive")
                    time.sleep(0.05)
                switch = pid_of(testbed.pid, "ovs-vswitchd")
                control = LinkControl(Runtime.of(testbed.name))
                set_link = partial(set_unannounced, switch) if unannounced else partial(set_by_hand, control)
                asked = flapped(set_link, times)
            finally:
                for process in processes:
                    process.terminate()
                    process.wait()
            lines = [line.split() for line in log.read_text().splitlines()]
    packets = [(int(line[0]), int(line[1]), int(line[2])) for line in lines if len(line) == 3]
    found: dict[str, list[dict[str, float]]] = {"down": [], "up": []}
    for (event, asked_ns), (_, until_ns) in itertools.pairwise(asked):
        found[event].append(gap(packets, asked_ns, until_ns))
    return found


def set_by_hand(links: LinkControl, unit: Unit, port: int, up: bool) -> None:
    links.set(addresses.optical_port_name(unit, port), up=up)


def set_unannounced(switch: int, unit: Unit, port: int, up: bool) -> None:
    """Set the device at the optical switch, in the network namespace of the process `switch`."""
    words = ["ip", "link", "set", addresses.oxc_device(unit, port), "up" if up else "down"]
    subprocess.run(["nsenter", "--net", "--target", str(switch), *words], check=True)


def flapped(set_link: Callable[[Unit, int, bool], None], times: int) -> list[tuple[str, int]]:
    """Set the ports of the circuit down and up again, in turn. Return each event with the time of its
    request, and the time of the end.
    """
    ports = [(SENDER, 2), (RECEIVER, 1)]
    asked = []
    for number in range(times):
        for event in ("down", "up"):
            asked.append((event, time.monotonic_ns()))
            set_link(*ports[number % 2], event == "up")
            time.sleep(REST_S)
    return [*asked, ("end", time.monotonic_ns())]


def row(units: str, found: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return a line of the table: medians, and the largest values."""
    cells = [units]
    for event, measure in (("down", "lost"), ("down", "since_asked"), ("up", "lost")):
        values = [each[measure] for each in found[event]]
        cells += [f"{statistics.median(values):.0f}", f"{max(values):.0f}"]
    return cells


HEAD = ("units", "lost, ms", "worst", "since asked, ms", "worst", "lost at the return, ms", "worst")


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--units", default=SIZES, help=f"sizes of rings, by commas ({SIZES})")
    parser.add_argument("--times", type=int, default=TIMES, help="how often a link goes down and comes back")
    parser.add_argument("--unannounced", action="store_true", help="set devices by ip link, not by testbed")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send:
        send(arguments.send)
    elif arguments.receive:
        receive()
    else:
        figures: dict[str, Any] = {
            units: measured(int(units), arguments.times, arguments.unannounced)
            for units in arguments.units.split(",")
        }
        print(table(HEAD, [row(units, found) for units, found in figures.items()]))
        if arguments.json:
            content = {"host": facts(), "figures": figures}
            arguments.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
