"""Mininet's nodes, interfaces and links, for devices that exist already.

Mininet makes one device at a time and keeps a shell for each node. Here all devices are made in batches
(net.py), these classes register them, and a node's shell starts at its first command. The Mininet API works:
`net.get("u1h1").cmd("ping ...")`, `net.hosts`, `net.pingAll()`, `host.popen(...)`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Node, Switch

from testbed.cgroups.hierarchy import members
from testbed.emulation.namespaces import NETNS_DIR
from testbed.emulation.topo import FabricTopo
from testbed.errors import RequestError
from testbed.topology.dataplanes import DATA_PLANES
from testbed.topology.model import Topology


class _LazyShell(Node):  # type: ignore[misc]  # Mininet has no types
    """A node whose shell starts at its first command: 256 hosts need not be 256 shells.

    To Mininet such a node has no namespace of Mininet's making; its commands run in `namespace`.
    """

    isSetup = True  # skips Mininet's own check, which ends the process if a tool is missing
    namespace: Path | None = None
    cgroup: Path | None = None  # the cgroup of its commands
    _started = False
    _ended = False

    def startShell(self, mnopts: str | None = None) -> None:
        """Start the shell; Mininet's constructor calls this too early, and is ignored."""
        if self._started:
            super().startShell(mnopts)

    def _ensure_shell(self) -> None:
        if not self._started and not self._ended:
            self._started = True
            self.startShell()

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        entering = ["nsenter", f"--net={self.namespace}", "--"] if self.namespace else []
        if self.cgroup is not None:
            params["preexec_fn"] = partial(members(self.cgroup).write_text, "0")
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
    """A host in its named network namespace, which is already configured."""

    def __init__(self, name: str, **params: Any) -> None:
        self.namespace = NETNS_DIR / name
        super().__init__(name, **{**params, "inNamespace": False})

    def config(self, **_params: Any) -> dict[str, str]:
        return {}


class FabricSwitch(_LazyShell, Switch):  # type: ignore[misc]
    """A bridge of the private Open vSwitch, or the ToR of an engine without one. It and its ports are made
    elsewhere: `start` and `stop` do nothing.
    """

    def __init__(self, name: str, dpid: str, engine: str | None = None, **params: Any) -> None:
        Node.__init__(self, name, **{**params, "inNamespace": False})
        self.dpid = self.defaultDpid(dpid)
        self.opts, self.listenPort = "", None
        self.engine = engine
        self.is_bridge = engine is None or DATA_PLANES[engine].is_bridge
        self.controlIntf = FabricIntf("lo", self, port=0)

    def start(self, controllers: list[Any]) -> None:
        """Do nothing: the network makes all switches at once."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Do nothing: the network removes all switches at once."""

    def dpctl(self, *args: str) -> str:
        if not self.is_bridge:
            return f"{self.name} has no OpenFlow: its engine is {self.engine}"
        return str(self.cmd("ovs-ofctl", "-O", "OpenFlow13", args[0], self.name, *args[1:]))

    def vsctl(self, *args: str) -> str:
        return str(self.cmd("ovs-vsctl", *args))

    def connected(self) -> bool:
        return (
            not self.is_bridge or self.vsctl("get", "Controller", self.name, "is_connected").strip() == "true"
        )


class FabricIntf(Intf):  # type: ignore[misc]
    """A device that is already made and configured."""

    def config(self, mac: str | None = None, ip: str | None = None, **_params: Any) -> dict[str, str]:
        if ip:
            self.ip, self.prefixLen = ip.split("/")
        return {}

    def updateIP(self) -> str | None:
        """Return the address that the fabric configured. Mininet's own method calls ifconfig, which a machine
        may lack.
        """
        return self.ip

    def delete(self) -> None:
        self.node.delIntf(self)
        self.link = None


class FabricLink(Link):  # type: ignore[misc]
    """A wire that is already made."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> tuple[None, None]:
        return None, None

    def stop(self) -> None:
        """Do nothing: wires end with the fabric."""


class FabricView(Mininet):  # type: ignore[misc]
    """A topology's nodes and links as Mininet sees them, over devices made elsewhere: for the process that
    makes them (net.py), and for processes that use a running testbed (remote.py).
    """

    def __init__(self, topo: FabricTopo, build: bool = True, **parts: Any) -> None:
        """Register the nodes and links. `parts`: other classes of hosts, switches and links, as for Mininet's
        constructor.
        """
        Mininet.inited = True  # skips Mininet's initialisation, which changes settings of the whole machine
        self.topology: Topology = topo.topology
        ours = {"host": FabricHost, "switch": FabricSwitch, "link": FabricLink, "intf": FabricIntf}
        super().__init__(topo=topo, build=build, controller=None, **(ours | parts))

    def _refuse_if_built(self, change: str) -> None:
        if self.built:
            raise RequestError(f"{change}: a network that is built keeps the nodes and links of its topology")

    def addHost(self, name: str, *args: Any, **params: Any) -> Any:
        self._refuse_if_built(f"addHost({name!r})")
        return super().addHost(name, *args, **params)

    def addSwitch(self, name: str, *args: Any, **params: Any) -> Any:
        self._refuse_if_built(f"addSwitch({name!r})")
        return super().addSwitch(name, *args, **params)

    def addLink(self, node1: Any, node2: Any, *args: Any, **params: Any) -> Any:
        self._refuse_if_built(f"addLink({str(node1)!r}, {str(node2)!r})")
        return super().addLink(node1, node2, *args, **params)

    def addController(self, *_args: Any, **_params: Any) -> Any:
        """Raise RequestError: the controller is a process of the testbed, which sets circuits on request."""
        raise RequestError("addController: the controller is the testbed's own")

    def delNode(self, node: Any, nodes: Any = None) -> None:
        """Raise RequestError, also for `delHost`, `delSwitch` and `del net[...]`, which call this."""
        raise RequestError(f"delNode({str(node)!r}): a network keeps the nodes and links of its topology")

    def delLink(self, link: Any) -> None:
        """Raise RequestError, also for `delLinkBetween`, which calls this."""
        raise RequestError(f"delLink({link}): a network keeps its links; configLinkStatus takes them down")
