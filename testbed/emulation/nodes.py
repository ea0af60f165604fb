"""Mininet's nodes, interfaces and links, over devices that exist already.

Mininet makes one device at a time and keeps a shell for each node; here the fabric makes all devices in
batches, these classes register them, and a node's shell starts at its first command. What a Mininet user
knows works: `net.get("u1h1").cmd("ping ...")`, `net.hosts`, `net.pingAll()`, `host.popen(...)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Node, Switch

from testbed.emulation.namespaces import NETNS_DIR
from testbed.emulation.topo import FabricTopo
from testbed.topology.model import Topology


class _LazyShell(Node):  # type: ignore[misc]  # Mininet has no types
    """A node whose shell starts at its first command: 256 hosts need not be 256 shells.

    To Mininet such a node is in no namespace, as Mininet would make one; `namespace` is where its commands
    run.
    """

    isSetup = True  # Mininet's own check ends the process where a tool is missing
    namespace: Path | None = None
    _started = False
    _ended = False

    def startShell(self, mnopts: str | None = None) -> None:
        """Called by Mininet's constructor, and not followed then."""
        if self._started:
            super().startShell(mnopts)

    def _ensure_shell(self) -> None:
        if not self._started and not self._ended:
            self._started = True
            self.startShell()

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        entering = ["nsenter", f"--net={self.namespace}", "--"] if self.namespace else []
        return super()._popen([*entering, *cmd], **params)

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("mncmd", ["mnexec", "-d"])
        return super().popen(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> Any:
        self._ensure_shell()
        return super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        self._ensure_shell()
        return super().cmd(*args, **kwargs)

    def terminate(self) -> None:
        self._ended = True
        super().terminate()


class FabricHost(_LazyShell):
    """A host in its named network namespace, which is configured already."""

    def __init__(self, name: str, **params: Any) -> None:
        self.namespace = NETNS_DIR / name
        super().__init__(name, **{**params, "inNamespace": False})

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}


class FabricSwitch(_LazyShell, Switch):  # type: ignore[misc]
    """A bridge of the private Open vSwitch, which is made and has its ports already, or a `simple_switch` of
    BMv2.
    """

    def __init__(self, name: str, dpid: str, is_bridge: bool = True, **params: Any) -> None:
        Node.__init__(self, name, **{**params, "inNamespace": False})
        self.dpid = self.defaultDpid(dpid)
        self.opts, self.listenPort = "", None
        self.is_bridge = is_bridge
        self.controlIntf = FabricIntf("lo", self, port=0)

    def start(self, controllers: list[Any]) -> None:
        """Nothing: it is up since the testbed is."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Nothing: it goes with the testbed."""

    def dpctl(self, *args: str) -> str:
        if not self.is_bridge:
            return f"{self.name} is a simple_switch: it has no OpenFlow"
        return str(self.cmd("ovs-ofctl", "-O", "OpenFlow13", args[0], self.name, *args[1:]))

    def vsctl(self, *args: str) -> str:
        return str(self.cmd("ovs-vsctl", *args))

    def connected(self) -> bool:
        return (
            not self.is_bridge or self.vsctl("get", "Controller", self.name, "is_connected").strip() == "true"
        )


class FabricIntf(Intf):  # type: ignore[misc]
    """A device that is made and configured already."""

    def config(self, mac: str | None = None, ip: str | None = None, **_params: Any) -> dict[str, Any]:
        if ip:
            self.ip, self.prefixLen = ip.split("/")
        return {}

    def updateIP(self) -> str | None:
        """It stays as the fabric configured it; Mininet's own asks ifconfig, which a machine may not have."""
        return self.ip

    def delete(self) -> None:
        self.node.delIntf(self)
        self.link = None


class FabricLink(Link):  # type: ignore[misc]
    """A wire that is made already."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> tuple[None, None]:
        return None, None

    def stop(self) -> None:
        """Nothing: wires go with the fabric."""


class FabricNet(Mininet):  # type: ignore[misc]
    """Mininet over a fabric that is up. Its own start and stop change nothing."""

    def __init__(self, topology: Topology, **parts: Any) -> None:
        """`parts`: other classes of hosts, switches and links, as Mininet's constructor takes them."""
        Mininet.inited = True  # its initialisation changes settings of the whole host
        ours = {"host": FabricHost, "switch": FabricSwitch, "link": FabricLink, "intf": FabricIntf}
        super().__init__(topo=FabricTopo(topology=topology), controller=None, **(ours | parts))

    def end_shells(self) -> None:
        """End the shells that commands started."""
        for node in [*self.hosts, *self.switches]:
            if node.shell:
                node.terminate()
