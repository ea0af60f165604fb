"""A running testbed as a Mininet network, from outside: commands in its hosts run through `testbed exec`,
with the rights of this process's user and no others.

Methods by which Mininet changes a network are refused. Links go down and up by the daemon's faults.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from subprocess import Popen
from typing import Any

from mininet.log import output
from mininet.node import Node

from testbed.client import rpc
from testbed.client.environment import typed
from testbed.client.runtime import Runtime
from testbed.emulation.nodes import FabricHost, FabricLink, FabricSwitch, FabricView
from testbed.emulation.topo import FabricTopo
from testbed.errors import RequestError, TestbedError
from testbed.interpreters import isolated
from testbed.messages.coding import decode
from testbed.messages.status import Status
from testbed.topology import addresses
from testbed.topology.model import Topology

MOST_SHELLS = (
    32  # simultaneous shells of hosts used by whole-network commands only: half of the daemon's limit
)
_LOOK_S = 0.2
_LISTENING_S = 10.0


class RemoteHost(FabricHost):
    """A host of a testbed that runs in another process. Its shell starts at its first command; `is_kept` says
    whether the shell may have state that a user needs.
    """

    def __init__(
        self, name: str, testbed: str, make_room: Callable[[RemoteHost], None], **params: Any
    ) -> None:
        self._entering = isolated("-m", "testbed.exec", "--name", testbed, name, "--")
        self._make_room = make_room
        self.is_kept = False
        super().__init__(name, **params)

    def _ensure_shell(self) -> None:
        if (
            self.shell is not None and self.shell.poll() is not None
        ):  # a user typed `exit`, or the testbed ended
            self.end_shell()
        if self.shell is None:
            self._make_room(self)
            self._started = False
        super()._ensure_shell()

    def startShell(self, mnopts: str | None = None) -> None:
        try:
            super().startShell(mnopts)
        except BaseException:  # also for Ctrl-C: a half-started shell would answer one command late
            self.end_shell()
            raise

    def end_shell(self) -> None:
        """End the shell. The next command starts a new one."""
        if self.shell is not None:
            self.shell.kill()  # its processes end with it
            self.cleanup()
        self.waiting, self._started, self.is_kept, self.readbuf = False, False, False, ""

    def terminate(self) -> None:
        self.end_shell()
        self._ended = True

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        """Start a command through `testbed exec`, without the leading `mnexec` and its options, which would
        enter no namespace here.
        """
        words = cmd[2:] if cmd[0] == "mnexec" else cmd
        started = Popen([*self._entering, *words], start_new_session=True, **params)
        if (
            params.get("stdin") is self.slave and self.slave is not None
        ):  # its shell: close the terminal here, so that its end can be read
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self.slave, inheritable=False)
            os.close(nothing)
        return started

    def read(self, size: int = 1024) -> str:
        try:
            if data := super().read(size):
                return str(data)
        except OSError as error:
            if error.errno != errno.EIO:  # the other end is closed
                raise
        said = self.readbuf.strip().splitlines()
        self.end_shell()
        raise EndedError(said[-1] if said else f"{self.name}: its shell has ended")

    def sendCmd(self, *args: Any, **kwargs: Any) -> Any:
        self._ensure_shell()
        return super().sendCmd(*args, **kwargs)


class EndedError(TestbedError):
    """The shell of a host has ended, or never started."""


class RemoteSwitch(FabricSwitch):
    """A switch, for information only. No command runs in it: it belongs to the testbed, in the daemon's
    namespace.
    """

    def __init__(self, name: str, state: Callable[[], Status], **params: Any) -> None:
        self._state = state
        super().__init__(name, **params)

    def _refused(self, *_args: Any, **_kwargs: Any) -> Any:
        raise RequestError(
            f"{self.name}: commands run in hosts, and this is a switch of the testbed's; "
            f"testbed status, circuits, capture and fault are about switches and their links"
        )

    cmd = sendCmd = popen = pexec = dpctl = vsctl = start = stop = _refused

    def connected(self) -> bool:
        """Return whether the controller has every switch."""
        return self._state().controller.ready

    def terminate(self) -> None:
        """Do nothing: the switch is the testbed's."""


class RemoteLink(FabricLink):
    """A wire, with the state that the daemon reports."""

    def __init__(self, *args: Any, state: Callable[[], Status], **params: Any) -> None:
        self._state = state
        super().__init__(*args, **params)

    def __str__(self) -> str:
        """Return both ends, with the host's name at a host's end, as in Mininet's names: every host's device
        is eth0.
        """
        ends = (self.intf1, self.intf2)
        return "<->".join(
            f"{end.node}-{end}" if isinstance(end.node, FabricHost) else str(end) for end in ends
        )

    def status(self) -> str:
        state, name = self._state(), link_name(self)
        if name not in [link.name for link in state.links]:
            return "(MISSING MISSING)"
        lost = {fault.direction for fault in state.faults if fault.link == name and fault.loss >= 1}
        return f"({'DOWN' if 'up' in lost else 'OK'} {'DOWN' if 'down' in lost else 'OK'})"


class RemoteNet(FabricView):
    """The running testbed `runtime`. Raises the daemon's errors, and RequestError for a user who may not
    access it.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._state, self._state_at = self._asked(), time.monotonic()
        topo = FabricTopo(Topology.from_json(runtime.topology.read_text()))
        self._shells: list[RemoteHost] = []  # in the order of their start
        super().__init__(
            topo,
            host=partial(RemoteHost, testbed=runtime.name, make_room=self._make_room),
            switch=partial(RemoteSwitch, state=self.state),
            link=partial(RemoteLink, state=self.state),
        )

    def start(self) -> None:
        """Raise RequestError: the testbed already runs."""
        raise RequestError("net.start: the testbed runs already")

    def stop(self) -> None:
        """Raise RequestError: leaving a prompt does not end the testbed."""
        raise RequestError(f"net.stop: end the testbed by: {typed('down', self._runtime.name)}")

    def state(self) -> Status:
        """Return the status, cached for a moment: Mininet asks for many links in a row."""
        if time.monotonic() - self._state_at > _LOOK_S:
            self._state, self._state_at = self._asked(), time.monotonic()
        return self._state

    def _asked(self) -> Status:
        return decode(Status, rpc.call(self._runtime.socket, "status"), "status")

    def _make_room(self, newcomer: RemoteHost) -> None:
        self._shells = [host for host in self._shells if host.shell is not None and host is not newcomer]
        idle = [host for host in self._shells if not host.is_kept and not host.waiting]
        for host in idle[: max(0, len(self._shells) + 1 - MOST_SHELLS)]:
            host.end_shell()
            self._shells.remove(host)
        self._shells.append(newcomer)

    def end_shells(self) -> None:
        for host in self.hosts:
            host.terminate()

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """Set faults that lose every frame of a link, both ways ("down"), or clear them ("up")."""
        for name in (src, dst):
            if name not in self.nameToNode:
                raise RequestError(f"link: no node {name}; nodes are {', '.join(self.nameToNode)}")
        links = self.linksBetween(self.nameToNode[src], self.nameToNode[dst])
        names = sorted(link_name(link) for link in links)
        if not names:
            raise RequestError(f"link: {src} and {dst} are not connected; the command net says what is")
        change = {"action": "clear"} if status == "up" else {"action": "set", "fault": {"loss": 1.0}}
        rpc.call(self._runtime.socket, "fault", links=names, **change)
        self._state_at = float("-inf")
        lost = "every frame is lost" if status == "down" else "no fault is left"
        shown = typed("fault list", self._runtime.name)
        output(f"*** {', '.join(names)}: {lost}, both ways; all of them: {shown}\n")

    def iperf(
        self,
        hosts: Sequence[RemoteHost] | None = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int = 5001,
    ) -> list[str]:
        """Measure like Mininet's iperf. That ends every iperf of this user by name, in all hosts; this ends
        only the server that it started.
        """
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        if client.cmd("command -v iperf").strip() == "":
            raise RequestError("iperf: not found; it is Debian's package iperf")
        words = [
            "iperf",
            "-p",
            str(port),
            *(["-u"] if l4Type == "UDP" else []),
            *(["-f", fmt] if fmt else []),
        ]
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        serving = server.popen([*words, "-s"])
        try:
            _await_listening(server, port, l4Type.lower())
            sending = ["-c", server.IP(), "-t", str(seconds), *(["-b", udpBw] if l4Type == "UDP" else [])]
            sent = client.pexec([*words, *sending])[0]
        finally:
            serving.terminate()
            received = serving.communicate()[0].decode(errors="replace")
        result = [self._parseIperf(received), self._parseIperf(sent)]
        result = [udpBw, *result] if l4Type == "UDP" else result
        output(f"*** Results: {result}\n")
        return result


def link_name(link: RemoteLink) -> str:
    """Return a link's name in the testbed's commands: the host's, the optical port's, that of the ToR that it
    joins to its pod switch, or u1c for the link to the core.
    """
    for intf in (link.intf1, link.intf2):
        if isinstance(intf.node, FabricHost):
            return str(intf.node.name)
    if link.intf2.node.name == addresses.CORE_BRIDGE:
        return f"{link.intf1.node.name}c"
    if addresses.OXC_BRIDGE not in (link.intf1.node.name, link.intf2.node.name):
        return str(link.intf1.node.name)
    unit = link.intf1 if link.intf1.node.name != addresses.OXC_BRIDGE else link.intf2
    return str(unit.name).replace("-", "")


def _await_listening(host: Node, port: int, kind: str) -> None:
    """Wait until a process in the host listens at that port. RequestError after the timeout."""
    deadline = time.monotonic() + _LISTENING_S
    look = ["grep", "-qsiE", f"^ *[0-9]+: [0-9A-F]+:{port:04X} ", f"/proc/net/{kind}", f"/proc/net/{kind}6"]
    while host.pexec(look)[2] != 0:
        if time.monotonic() > deadline:
            raise RequestError(f"iperf: no server at port {port} of {host} after {_LISTENING_S:g} s")
        select.select([], [], [], _LOOK_S)
