"""The fabric: everything emulated of a topology, as a mininet.net.Mininet that makes it in batches.

Runs inside the testbed's own namespaces (namespaces.py). Owns the order and the names. XDP programs are
attached by others after `start`; OpenFlow rules are the controller's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from testbed.cgroups.hierarchy import NO_CGROUPS, Cgroups
from testbed.emulation.congestion_marks import LinkMarks
from testbed.emulation.enclosures import Enclosure, Enclosures
from testbed.emulation.faults import LinkFaults
from testbed.emulation.links import SYSCTLS, WIRES, Progress, Wires, WireStatistics, device_drops
from testbed.emulation.manual_links import LinksByHand
from testbed.emulation.namespaces import NETNS_DIR, NetworkNamespaces, entered
from testbed.emulation.netlink import AttachedProgram, RouteSocket
from testbed.emulation.nodes import FabricView
from testbed.emulation.openvswitch import OpenVSwitch
from testbed.emulation.parts import OxcDevice, SwitchDevice, parts
from testbed.emulation.ports import PortWatch
from testbed.emulation.spawner import Spawner, Started
from testbed.emulation.template import Forked, Template
from testbed.emulation.topo import FabricTopo
from testbed.emulation.user_isolation import HostsApart
from testbed.errors import RequestError
from testbed.machine.links import NO_DELAY, LinkDelay, LinkDisturbance, LinkFault
from testbed.topology import addresses


def _nobody_is_told(_changes: object) -> None:
    pass


def silent(_phase: str, _done: int, _total: int) -> None:
    pass


ASIDE = "aside"  # a network namespace without links


class FabricNet(FabricView):
    """The emulated network of a topology. `build`, which the constructor calls as Mininet's does, makes hosts
    and links; `start` makes the switches; `stop` removes everything. A context manager: entering starts it.
    """

    def __init__(
        self,
        topo: FabricTopo,
        log_dir: Path,
        progress: Progress = silent,
        build: bool = True,
        cgroups: Cgroups = NO_CGROUPS,
        leaves_devices: bool = False,
    ) -> None:
        """Prepare, and build unless `build` is False. `leaves_devices`: leave devices to the kernel, for a
        process that ends, with its namespaces, once this has stopped.
        """
        limits = topo.topology.cpu_limits
        if limits and cgroups.limits is None:
            raise RequestError(f"{next(iter(limits))}: cpus: nobody made cgroups for these hosts")
        self._cgroups = {host: cgroups.limits / host for host in limits} if cgroups.limits else {}
        self._parts = parts(topo.topology)
        self._progress = progress
        self._namespaces = NetworkNamespaces()
        self._enclosures = Enclosures(cgroups.enclosures, self._cgroups, self._namespaces.__getitem__)
        self.enclosed = self._enclosures.opened  # for processes that run as a user: Enclosures.opened
        self.popen_aside = partial(self.popen_in, ASIDE)  # reaches no host
        self._template = Template(self.popen_aside)
        self.set_users: Callable[[Mapping[str, int]], None] = _nobody_is_told  # HostsApart.set_users
        self.follow_rates: Callable[[Mapping[str, float]], None] = _nobody_is_told  # of links, in Mb/s
        self._wires: Wires | None = None
        self._marks: LinkMarks | None = None
        self._faults: LinkFaults | None = None
        self._by_hand: LinksByHand | None = None
        self._apart: HostsApart | None = None
        self._spawner: Spawner | None = None
        self._release = contextlib.ExitStack()
        self._is_stopped = False
        self._leaves_devices = leaves_devices
        self.openvswitch = OpenVSwitch(log_dir, leaves_devices)
        super().__init__(topo, build)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -------------------------------------------------------------- up and down

    def build(self) -> None:
        """Make hosts and links, in batches, and Mininet's nodes for them. A failure removes what was made,
        then raises its error. RequestError if the network was stopped.
        """
        self._refuse_if_stopped("build")
        with self._whole_or_nothing():
            self._make_devices()
            super().build()
            for host, cgroup in self._cgroups.items():
                self.get(host).cgroup = cgroup

    def start(self) -> None:
        """Build what is not built yet, then make all switches at once. A failure removes everything, then
        raises its error. RequestError if the network was stopped.
        """
        self._refuse_if_stopped("start")
        with self._whole_or_nothing():
            super().start()
            self._make_switches()

    def stop(self) -> None:
        """Remove everything, in reverse order, permanently. Processes started by `popen_in` are killed."""
        self._is_stopped = True
        try:
            super().stop()
        finally:
            self._release.close()
            self._wires = self._spawner = self._faults = self._marks = self._by_hand = self._apart = None
            self.set_users = _nobody_is_told

    def _refuse_if_stopped(self, step: str) -> None:
        """Raise RequestError if the network was stopped: Mininet's nodes end with it and get no new
        shells.
        """
        if self._is_stopped:
            raise RequestError(f"{step}: a network that was stopped does not start again; make another")

    @contextlib.contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def _make_devices(self) -> None:
        # Open vSwitch starts, and the links' programs are compiled, while the devices are made.
        self._release.callback(self.openvswitch.stop)
        self.openvswitch.launch()
        marks = self._release.enter_context(LinkMarks(self._parts.wires))
        apart = None
        if not self.topology.shared:
            apart = self._release.enter_context(HostsApart(self._namespace))
        self._release.callback(self._namespaces.remove_all)
        names = self._parts.namespaces
        for path, value in SYSCTLS.items():
            Path("/proc/sys", path).write_text(value)
        self._progress("namespaces", 0, len(names))
        self._namespaces.add([*names, ASIDE], SYSCTLS)
        self._progress("namespaces", len(names), len(names))
        self._wires = Wires(self._namespaces, self._parts.wires)
        self._release.callback(self._wires.close, self._leaves_devices)
        self._wires.make(self._progress)
        self._wires.configure_hosts(self._parts.hosts, self._progress)
        self._marks, self._apart = marks, apart
        if apart is not None:
            self.set_users = apart.set_users
        self._faults = LinkFaults(self._namespaces[WIRES], self._parts.wires, self._wires.make_checksums)
        self._release.callback(self._faults.close)
        self._wires.follow_delay = self._faults.follow_delay
        self._by_hand = LinksByHand(self._wires, self._parts.wires, self.set_rates)
        self._begin_faults()
        self._spawner = Spawner()
        self._release.callback(self._spawner.close)
        self._release.callback(self._template.close)

    def _begin_faults(self) -> None:
        """Set the delays and faults that links have from the start."""
        assert self._wires
        assert self._faults
        for wire in self._parts.wires:
            if wire.delay != NO_DELAY:
                self._wires.set_delays([wire.name], wire.delay)
        for link, start in self.topology.link_starts.items():
            if start.has_fault:
                rates = (start.loss, start.duplicate, start.reorder, start.corrupt)
                self._faults.set(link, LinkFault(*rates, start.distance, start.seed))

    def _make_switches(self) -> None:
        bridges = self._parts.bridges
        self._progress("switches", 0, len(bridges))
        self.openvswitch.wait_for_database()
        self._release.callback(self.openvswitch.stop)  # its ports first, then their devices
        self.openvswitch.add_bridges(bridges)
        if self._marks is not None:
            self._marks.attach(self._namespaces[WIRES])  # last, since it waits for its program
        if self._apart is not None:
            interfaces = {
                addresses.host_name(*host): addresses.host_ifindex(*host) for host in self.topology.hosts
            }
            self._apart.prepare(interfaces)
        self._progress("switches", len(bridges), len(bridges))

    def watch(self) -> None:
        """Raise TestbedError if a process that the fabric needs has ended."""
        self.openvswitch.watch()
        if self._wires:
            self._wires.watch()

    # -------------------------------------------------------------- for others

    def host_namespace(self, host: str) -> Path:
        """Return the file that names a host's network namespace. RequestError if there is no such host."""
        self._namespace(host)
        return NETNS_DIR / host

    def _namespace(self, host: str) -> int:
        if host not in self.topology.host_names:
            raise RequestError(f"host {host}: no such host; there are {', '.join(self.topology.host_names)}")
        return self._namespaces[host]

    def popen_in(
        self, host: str, argv: Sequence[str], enclosure: Enclosure | None = None, **options: Any
    ) -> Started:
        """Start a process in a host's network namespace, within the host's limit, and in an enclosure if one
        is given; options as for Spawner.popen. A process that runs as a user in ASIDE gets an enclosure of
        its own, which `Started.end` ends.
        """
        namespace = self._namespaces[ASIDE] if host == ASIDE else self._namespace(host)
        own = None
        if host == ASIDE and options.get("uid") is not None:
            own = enclosure = self._enclosures.open(ASIDE, options["uid"])
        if enclosure is None:
            limit = self._cgroups.get(host)
            return self._popen(namespace, argv, cgroups=[limit] if limit else [], **options)
        environment = {**options.pop("env"), **enclosure.mark}
        try:
            started = self._popen(namespace, argv, cgroups=enclosure.at(host), env=environment, **options)
        except BaseException:
            if own is not None:
                own.end()
            raise
        started.enclosure = own
        return started

    def fork_in(self, host: str, script: Sequence[str], enclosure: Enclosure, **options: Any) -> Forked:
        """Start a script as a fork of a template process that has torch loaded, in a host's network namespace
        and in an enclosure; options as for Template.popen.
        """
        return self._template.popen(
            self.host_namespace(host), script, hold=partial(enclosure.hold, host), **options
        )

    def end_forks(self) -> None:
        """End the template process of the forks, and with it the forks that still run."""
        self._template.close()

    def _popen(self, namespace: int, argv: Sequence[str], **options: Any) -> Started:
        if self._spawner is None:
            raise RequestError(f"run {argv[0]}: the fabric is not up")
        return self._spawner.popen(namespace, argv, **options)

    def statistics(self, queues_only: bool = False) -> dict[str, WireStatistics]:
        """Return the counters of every link, by name: u1h1 is that host's link, u1o1 that optical port's. See
        Wires.statistics.
        """
        if self._wires is None:
            raise RequestError("link statistics: the fabric is not up")
        return self._wires.statistics(queues_only)

    def kept_apart(self) -> dict[str, int] | None:
        """Count the frames dropped on their way to hosts of other users' jobs, by sending host; None if the
        topology is shared.
        """
        return None if self._apart is None else self._apart.dropped()

    def gone_links(self) -> dict[str, str]:
        """Return the links that lacked a device at the latest reading, with that device."""
        return self._wires.gone if self._wires else {}

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        """Change the rates of links, by name. See Wires.set_rates."""
        if self._wires is None or self._marks is None:
            raise RequestError("link rates: the fabric is not up")
        self._wires.set_rates(rates_mbps)
        self._marks.set_rates(rates_mbps)
        self.follow_rates(rates_mbps)

    def follow_delays(self, told: Callable[[Mapping[str, LinkDelay]], None]) -> None:
        """Call `told` with the delays of links that have one, and at each change with those that changed."""
        if self._wires is None:
            raise RequestError("link delays: the fabric is not up")
        self._wires.follow_delays = told
        told(self._wires.delays())

    @property
    def by_hand(self) -> LinksByHand:
        """The user's settings of links, while they carry frames: rates, delays, up and down."""
        if self._by_hand is None:
            raise RequestError("links by hand: the fabric is not up")
        return self._by_hand

    def by_hand_mbps(self, link: str) -> float | None:
        """Return the rate that a user set on a link; None if no user did."""
        return self.by_hand.rate_mbps(link)

    def ever_by_hand(self) -> frozenset[str]:
        """Return the links on which a user has set something, even temporarily."""
        return self.by_hand.ever()

    def unsent(self, hosts: Sequence[str]) -> dict[str, int]:
        """Count the frames that each host's own interface failed to pass to its link, since the testbed
        started.
        """
        return {host: device_drops(self._namespace(host), "eth0") for host in hosts}

    def watch_ports(self, hosts: Sequence[str], signs: Sequence[bytes]) -> PortWatch:
        """Watch hosts' TCP ports and their owners. See PortWatch."""
        return PortWatch({host: self.host_namespace(host) for host in hosts}, signs)

    def program_at(self, host: str, device: str) -> AttachedProgram | None:
        """Return the XDP program on a device of a host, or None."""
        with entered(self._namespace(host)):
            route = RouteSocket()
        with route:
            state = route.devices().get(device)
        return state.xdp if state else None

    def programs_at_switches(self) -> dict[str, AttachedProgram | None]:
        """Return the XDP program, or None, on each device of a switch."""
        with RouteSocket() as route:
            return {name: state.xdp for name, state in route.devices().items()}

    @property
    def faults(self) -> LinkFaults:
        """The faults of links: loss, duplication, reordering and corruption."""
        if self._faults is None:
            raise RequestError("link faults: the fabric is not up")
        return self._faults

    def fault_states(self) -> list[LinkDisturbance]:
        """Return the faults that are set on links, and their delays."""
        return [*self.faults.now(), *_delayed(self.by_hand.delays().items())]

    def ended_faults(self, since_s: float) -> list[LinkDisturbance]:
        """Return the faults and delays that ended since a time of the monotonic clock."""
        return [*self.faults.ended(since_s), *_delayed(self.by_hand.ended_delays(since_s))]

    def switch_devices(self) -> tuple[SwitchDevice, ...]:
        """Return every ToR port, for attaching programs."""
        return self._parts.switch_devices

    def oxc_devices(self) -> tuple[OxcDevice, ...]:
        """Return every port of the optical switch."""
        return self._parts.oxc_devices


def _delayed(delays: Iterable[tuple[str, LinkDelay]]) -> list[LinkDisturbance]:
    return [LinkDisturbance(link, "both ways", delay) for link, delay in delays]
