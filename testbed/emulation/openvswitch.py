"""A private Open vSwitch: its two processes, its bridges, and reading back what it made.

Owns ovsdb-server and ovs-vswitchd as children, which connect in the testbed's private /run/openvswitch. The
database is there too, in memory. OpenFlow rules are the controller's.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.emulation.namespaces import die_with_parent
from testbed.emulation.netlink import ADOPTED_GROUP, RouteSocket, delete_group, set_group
from testbed.emulation.sockets import shared_sockets
from testbed.errors import HostError, SettingError, TestbedError
from testbed.topology.addresses import Dpid

RUN_DIR = Path("/run/openvswitch")
_DATABASE = RUN_DIR / "conf.db"
_SOCKET = RUN_DIR / "db.sock"
_START_TIMEOUT_S = 20.0
_CHANGE_TIMEOUT_S = 60.0
_PORT_TIMEOUT_S = 0.1  # added for each port of a change: 2,250 took over a minute on a loaded machine
_RECONNECT_MS = 1000


@dataclass(frozen=True, slots=True)
class Port:
    """A device that is a port of a bridge, and its OpenFlow number."""

    device: str
    number: int


@dataclass(frozen=True, slots=True)
class Bridge:
    """A switch and its ports."""

    name: str
    datapath_id: Dpid
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    log: Path


class OpenVSwitch:
    """The Open vSwitch of this testbed's namespaces. A context manager: leaving it ends both processes."""

    def __init__(self, log_dir: Path, leaves_devices: bool = False) -> None:
        """Prepare. `leaves_devices`: the end of the network namespace deletes the bridges' devices."""
        self._log_dir, self._leaves_devices = log_dir, leaves_devices
        self._children: list[_Child] = []
        self._bridges: list[str] = []
        self.datapath = "netdev"

    def __enter__(self) -> OpenVSwitch:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -------------------------------------------------------------- processes

    def start(self) -> None:
        """Start both processes and wait for the database. HostError if Open vSwitch is not installed."""
        self.launch()
        self.wait_for_database()

    def launch(self) -> None:
        """Start both processes without waiting, so that other work is done while they start."""
        for tool in ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"):
            if shutil.which(tool) is None:
                raise HostError(f"{tool} is not installed; install Debian's package openvswitch-switch")
        _DATABASE.unlink(missing_ok=True)
        _run(["ovsdb-tool", "create", str(_DATABASE)], _START_TIMEOUT_S)
        self._start("ovsdb-server", [str(_DATABASE), f"--remote=punix:{_SOCKET}"])
        self._start("ovs-vswitchd", [f"unix:{_SOCKET}"])

    def _start(self, name: str, arguments: Sequence[str]) -> None:
        log = self._log_dir / f"{name}.log"
        quiet = ["-vconsole:off", "-vsyslog:off", f"--log-file={log}", f"--pidfile={RUN_DIR / name}.pid"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [name, *arguments, *quiet],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,
            )
        self._children.append(_Child(name, process, log))

    def wait_for_database(self) -> None:
        """Wait until the database answers."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            self.watch()
            with socket.socket(socket.AF_UNIX) as attempt:
                try:
                    attempt.connect(str(_SOCKET))
                    return
                except (FileNotFoundError, ConnectionRefusedError):
                    pass
            if time.monotonic() > deadline:
                raise TestbedError(f"ovsdb-server did not open {_SOCKET} within {_START_TIMEOUT_S:g} s")
            time.sleep(0.005)

    def watch(self) -> None:
        """Raise TestbedError if a process of Open vSwitch has ended."""
        for child in self._children:
            status = child.process.poll()
            if status is not None:
                end = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
                raise TestbedError(f"{child.name} {end}; its last words: {_last_line(child.log)}")

    def pids(self) -> dict[str, int]:
        return {child.name: child.process.pid for child in self._children}

    def stop(self) -> None:
        """End the processes and remove what they leave. Nothing needs saving: the database ends with them.
        TestbedError if a process had ended before, so that bridges remain.
        """
        try:
            if self.datapath == "system" and self._children and not self._leaves_devices:
                self._delete_bridges()
        finally:
            self._end()

    def _end(self) -> None:
        while self._children:
            child = self._children.pop()
            with shared_sockets(child.process.pid):
                child.process.kill()
                child.process.wait()
        if self.datapath != "system" and not self._leaves_devices:
            self._delete_internal_devices()

    def _delete_bridges(self) -> None:
        """Delete the bridges while Open vSwitch runs: only it can delete devices of the kernel's datapath."""
        self.watch()  # a change would wait long for a process that has ended
        change = [word for name in self._bridges for word in ("--", "--if-exists", "del-br", name)]
        if change:
            self._vsctl(change)

    def _delete_internal_devices(self) -> None:
        """Delete each bridge's own device, which the user-space datapath leaves behind when its
        process ends.
        """
        ours, self._bridges = {*self._bridges, "ovs-netdev"} if self._bridges else set(), []
        with RouteSocket() as route:
            left = [name for name in route.devices() if name in ours]
            if left:
                route.send([*(set_group(name, ADOPTED_GROUP) for name in left), delete_group(ADOPTED_GROUP)])

    # -------------------------------------------------------------- bridges

    def add_bridges(self, bridges: Sequence[Bridge]) -> None:
        """Make all bridges and ports in one transaction, wait for it, and read the port numbers back.

        Use the kernel's datapath if a trial shows that it works.
        """
        self.datapath = "system" if _has_kernel_datapath() else "netdev"
        threads = [f"other_config:n-{kind}-threads=1" for kind in ("handler", "revalidator")]
        change = ["--", "set", "Open_vSwitch", ".", *threads]
        for bridge in bridges:
            change += self._bridge_change(bridge)
        self._bridges += [bridge.name for bridge in bridges]
        self._vsctl(change, sum(len(bridge.ports) for bridge in bridges))
        self._read_back(bridges)

    def _bridge_change(self, bridge: Bridge) -> list[str]:
        settings = [
            f"datapath_type={self.datapath}",
            "fail_mode=secure",
            "protocols=OpenFlow13",
            f"other_config:datapath-id={bridge.datapath_id:016x}",
            "other_config:disable-in-band=true",
            f"other_config:dp-desc={bridge.name}",
        ]
        change = ["--", "add-br", bridge.name, "--", "set", "Bridge", bridge.name, *settings]
        for port in bridge.ports:
            change += ["--", "add-port", bridge.name, port.device]
            change += ["--", "set", "Interface", port.device, f"ofport_request={port.number}"]
        return change

    def connect(self, port: int) -> None:
        """Set the controller of all bridges. It should already listen: a refused bridge retries only after
        seconds.
        """
        change: list[str] = []
        for name in self._bridges:
            change += ["--", "set-controller", name, f"tcp:127.0.0.1:{port}"]
            change += ["--", "set", "Controller", name, f"max_backoff={_RECONNECT_MS}"]
        if change:
            self._vsctl(change)

    def _vsctl(self, arguments: Sequence[str], ports: int = 0) -> str:
        """Run ovs-vsctl, with time to change this number of ports."""
        within_s = _CHANGE_TIMEOUT_S + ports * _PORT_TIMEOUT_S
        try:
            return _run(["ovs-vsctl", f"--db=unix:{_SOCKET}", *arguments], within_s)
        except TestbedError:
            self.watch()  # a dead process is the better explanation
            raise

    def _read_back(self, bridges: Sequence[Bridge]) -> None:
        interfaces = {str(row["name"]): row for row in self.rows("Interface", "name", "ofport", "error")}
        for bridge in bridges:
            for port in bridge.ports:
                interface = interfaces.get(port.device, {})
                number = interface.get("ofport", "no port")
                if number != port.number:
                    asked = f"{port.device} was asked for as port {port.number}"
                    because = f": {interface['error']}" if interface.get("error") else ""
                    raise SettingError(f"bridge {bridge.name}: {asked} and reads back {number}{because}")
        identities = {row["name"]: row["datapath_id"] for row in self.rows("Bridge", "name", "datapath_id")}
        for bridge in bridges:
            wanted = f"{bridge.datapath_id:016x}"
            identity = identities.get(bridge.name)
            if identity != wanted:
                raise SettingError(
                    f"bridge {bridge.name}: datapath id {wanted} was set and reads back {identity}"
                )

    def rows(self, table: str, *columns: str) -> list[dict[str, object]]:
        """Return columns of a table of the database, one mapping per row."""
        answer = json.loads(self._vsctl(["--format=json", f"--columns={','.join(columns)}", "list", table]))
        return [dict(zip(answer["headings"], row, strict=True)) for row in answer["data"]]

    def connected(self) -> dict[str, bool]:
        """Return whether each controller connection is up, by its record's id."""
        return {
            str(row["_uuid"]): row["is_connected"] is True
            for row in self.rows("Controller", "_uuid", "is_connected")
        }


def _has_kernel_datapath() -> bool:
    """Return whether Open vSwitch's kernel module works in this network namespace, by making a datapath."""
    probe = "probe"
    made = subprocess.run(
        ["ovs-dpctl", "add-dp", probe], capture_output=True, timeout=_START_TIMEOUT_S, check=False
    )
    if made.returncode != 0:
        return False
    _run(["ovs-dpctl", "del-dp", probe], _START_TIMEOUT_S)
    return True


def _run(argv: Sequence[str], timeout_s: float) -> str:
    attempt = " ".join(argv[:1])
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise TestbedError(f"{attempt}: no answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise TestbedError(f"{attempt}: {lines[-1]}")
    return done.stdout


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "none"
