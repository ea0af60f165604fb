"""TCP through the head of an ALEPH job's cluster: with the XDP program at its interface, and without.

`python -m tests.bench.through [--rounds N] [--json FILE]`, as root. A testbed of two hosts is brought up,
once with links of a rate and once without. A connection sends at full speed to the first host, and then from
it, for a second each, with the program and without it in turn. The result is the ratio of the two in each
round, since both see the same machine. Without a rate the cores limit the speed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.client.runtime import Runtime
from testbed.emulation.links import set_offloads
from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.topology.units import Unit
from tests.bench.host import ROOT, facts
from tests.bench.large import done
from tests.privileged.commands import fresh_name, open_folder, pid_of

RATES_MBPS: tuple[float | None, ...] = (200.0, None)
WINDOW_S, SETTLING_S, LIMIT_S = 1.0, 0.3, 10.0
PORT, DEVICE = 5001, "eth0"
WAYS = TO, FROM = ("to", "from")
_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}[os.uname().machine]
_PROG_GET_FD_BY_ID, _DRIVER_MODE = 13, 1 << 2


class Program:
    """The program at a device of this network namespace; it can be detached and attached again."""

    def __init__(self) -> None:
        shown = subprocess.run(
            ["ip", "-j", "link", "show", DEVICE], capture_output=True, check=True, timeout=LIMIT_S
        )
        number = json.loads(shown.stdout)[0]["xdp"]["prog"]["id"]
        attributes = struct.pack("=III", number, 0, 0)
        self._fd = ctypes.CDLL(None, use_errno=True).syscall(
            _SYS_BPF, _PROG_GET_FD_BY_ID, attributes, len(attributes)
        )
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), f"open program {number}")

    def attach(self, is_on: bool) -> None:
        """Attach or detach the program. Without a program, a veth device accepts redirected frames only while
        its GRO is on (drivers/net/veth.c, veth_xdp_xmit), so GRO is on in both cases.
        """
        set_offloads(DEVICE, gro=True)
        bcc = ctypes.CDLL("libbcc.so.0")
        if bcc.bpf_attach_xdp(DEVICE.encode(), self._fd if is_on else -1, _DRIVER_MODE) < 0:
            raise SystemExit(f"{'attach to' if is_on else 'detach from'} {DEVICE}")
        set_offloads(DEVICE, gro=True)
        time.sleep(SETTLING_S)


def received_mbps(connection: socket.socket) -> float:
    """Return the rate received in a window, once the connection has reached full speed."""
    total, began = 0, time.monotonic() + SETTLING_S
    while (now := time.monotonic()) < began + WINDOW_S:
        if select.select([connection], [], [], LIMIT_S)[0]:
            size = len(connection.recv(1 << 18))
            total += size if now >= began else 0
    return 8 * total / (now - began) / 1e6


def send(connection: socket.socket) -> None:
    """Send until the other end closes."""
    data = bytes(1 << 18)
    try:
        while True:
            connection.sendall(data)
    except OSError:
        connection.close()


def at_head(rounds: int) -> None:
    """Print the rates, a line of JSON for each round; the other end reports the rates that it received."""
    program = Program()
    with socket.create_server(("0.0.0.0", PORT)) as listening:
        print("ready", flush=True)
        for number in range(rounds):
            row = {}
            for is_on in (True, False) if number % 2 else (False, True):
                program.attach(is_on)
                for way in WAYS:
                    connection, _ = listening.accept()
                    with connection:
                        row[f"{way} {'with' if is_on else 'without'}"] = _carried(connection, way)
            program.attach(True)
            print(json.dumps(row), flush=True)


def _carried(connection: socket.socket, way: str) -> float:
    if way == TO:
        return received_mbps(connection)
    send(connection)
    with socket.create_server(("0.0.0.0", PORT + 1)) as telling:
        other, _ = telling.accept()
        with other:
            return float(other.recv(64))


def at_other(head_ip: str, rounds: int) -> None:
    """Run the other end of all rounds."""
    for _ in range(2 * rounds):
        for way in WAYS:
            with _connected(head_ip, PORT) as connection:
                if way == TO:
                    send(connection)
                    continue
                mbps = received_mbps(connection)
            with _connected(head_ip, PORT + 1) as tells:
                tells.sendall(str(mbps).encode())


def _connected(ip: str, port: int) -> socket.socket:
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection((ip, port), LIMIT_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def measured(rate_mbps: float | None, rounds: int) -> dict[str, Any]:
    """Measure on links of this rate (None: unshaped)."""
    with open_folder() as folder:
        file, name = folder / "through.yaml", fresh_name()
        config = {
            "units": [{"hosts": 2}],
            "host_rate_mbps": rate_mbps or "unshaped",
            "scale": 1,
        }
        file.write_text(json.dumps(config))
        done("testbed.up", "--config", str(file), "--name", name, "--detach")
        try:
            rows = _rounds(int(json.loads(Runtime.of(name).main.read_text())["pid"]), rounds)
        finally:
            done("testbed.down", "--name", name)
    ratios = {way: [row[f"{way} with"] / row[f"{way} without"] for row in rows] for way in WAYS}
    return {"rate_mbps": rate_mbps, "rounds": rows, "ratios": ratios}


def _rounds(main: int, rounds: int) -> list[dict[str, float]]:
    head, other = (Unit(1), 1), (Unit(1), 2)
    argv = [sys.executable, "-m", "tests.bench.through", "--rounds", str(rounds)]
    daemon = pid_of(main, "testbed.daemon.process")

    def inside(host: Host, *words: str) -> list[str]:
        netns = ["ip", "netns", "exec", addresses.host_name(*host)]
        entered = ["nsenter", f"--target={daemon}", "--mount", f"--wd={ROOT}"]
        return [*entered, *netns, *argv, *words]

    with subprocess.Popen(inside(head, "--head"), stdout=subprocess.PIPE, text=True, cwd=ROOT) as receiving:
        assert receiving.stdout
        try:
            if receiving.stdout.readline() != "ready\n":
                raise SystemExit("the head's end did not begin")
            words = inside(other, "--other", addresses.host_ip(*head))
            with subprocess.Popen(words, cwd=ROOT) as sending:
                rows = [json.loads(line) for line in receiving.stdout]
                sending.wait(LIMIT_S)
        finally:
            receiving.kill()
    return rows


def line(row: dict[str, Any]) -> str:
    rate = "unshaped" if row["rate_mbps"] is None else f"{row['rate_mbps']:g} Mb/s"
    words = [f"{rate:>10}"]
    for way in WAYS:
        with_it = statistics.median(each[f"{way} with"] for each in row["rounds"])
        ratios = sorted(row["ratios"][way])
        words.append(
            f"{way} the head {with_it:.0f} Mb/s, {statistics.median(ratios):.3f} of that without "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
    return "; ".join(words)


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.through", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="with and without it (10)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--head", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--other", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.head:
        at_head(arguments.rounds)
        return 0
    if arguments.other:
        at_other(arguments.other, arguments.rounds)
        return 0
    results = []
    for rate_mbps in RATES_MBPS:
        results.append(measured(rate_mbps, arguments.rounds))
        print(line(results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"host": facts(), "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
