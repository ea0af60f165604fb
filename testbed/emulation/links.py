"""Links: define wires, make many of them at once, read them back, and count their traffic.

A shaped wire is two veth pairs. Their inner ends are in the namespace `wires`, joined there by an ingress
redirect each way, with a token bucket on the egress of either inner end. So a rate holds for every frame,
also for those that XDP redirected, which skip the egress queue of the device they leave by. An unshaped wire
is one veth pair.

If frames do not fit one buffer, a bridge of two ports joins the inner ends instead of redirects: programs
then run in generic mode, which lets a redirected frame pass unseen (net/core/dev.c, skb_is_redirected; Linux
6.18).

A host's interface leaves the checksums of what it sends over a shaped wire to the inner end behind the token
bucket: before Linux 6.11 a device without that offload accepts no bursts (UDP_SEGMENT fails with EIO). The
host computes them itself where a fault stage may change frames (`make_checksums`), and on unshaped wires,
since an XDP program at the other end would see only the pseudo header's sum.

A rate is of Ethernet frames as the kernel holds them: header and payload, at MTU 1500 up to 1514 bytes.
Preamble, frame check sequence and the gap between frames, 24 bytes a frame on a real wire, are not emulated.
Owns devices, offloads, queues and the hosts' addresses. Knows nothing of units, Open vSwitch or Mininet.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.emulation.delay_stage import DelayedEnd, DelayStage
from testbed.emulation.namespaces import NetworkNamespaces, entered
from testbed.emulation.netem import delays, end_delay, room_bytes, room_packets, set_delay
from testbed.emulation.netlink import (
    FABRIC_GROUP,
    DeviceSpec,
    DeviceState,
    Message,
    NetlinkError,
    QueueState,
    RouteSocket,
    add_address,
    add_bridge,
    add_default_route,
    add_ingress,
    add_neighbour,
    add_redirect,
    add_token_bucket,
    add_veth,
    change_token_bucket,
    delete_device,
    delete_group,
    is_missing_feature,
    join_bridge,
    set_down,
    set_merging,
    set_up,
)
from testbed.emulation.offloads import CHECKSUMS, FeatureControl, wire_features
from testbed.errors import HostError, RequestError, SettingError
from testbed.machine.links import ETHERNET_BYTES, NO_DELAY, LinkDelay, burst_bytes, rate_bytes_per_s
from testbed.wire.spec import ONE_BUFFER_MTU

WIRES = "wires"
# Set before a device exists: no IPv6 traffic on the fabric, and hosts accept packets whatever their return
# path.
SYSCTLS = {
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/rp_filter": "0",
    # ping without a capability, for every group: these sockets only send and receive ICMP echoes
    "net/ipv4/ping_group_range": "0 2147483647",
    # a host's servers may have any port, as those of a machine of the user's own
    "net/ipv4/ip_unprivileged_port_start": "0",
    # A dark circuit comes back, so TCP must retry at least once a second, however much it lost. Kernels
    # before 6.15 have no such setting; none accepts less.
    **({"net/ipv4/tcp_rto_max_ms": "1000"} if Path("/proc/sys/net/ipv4/tcp_rto_max_ms").exists() else {}),
}
# GRO at a wire's inner ends makes veth poll; merging frames there would let 64 KiB through at once and count
# its loss as one drop.
_MERGE_NOTHING = 1
_RATE_ERROR = 0.005
_PORT_IFINDEX = (
    0x20000  # switch ports: above the hosts' numbers, so that no two devices of a testbed share one
)
_INNER_IFINDEX = 0x40000
_BRIDGE_IFINDEX = 0x50000
_CHUNK = 32  # wires per progress report

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class WireEnd:
    """One end of a wire. `namespace` None: the testbed's root namespace; ifindex 0: this module
    chooses one.
    """

    device: str
    namespace: str | None = None
    mac: str | None = None
    ifindex: int = 0


@dataclass(frozen=True, slots=True)
class WireSpec:
    """A wire between two ends. `rate_mbps` None: unshaped. `buffer_bytes` is each direction's queue; `delay`
    applies to each direction, on shaped wires only.
    """

    name: str
    a: WireEnd
    b: WireEnd
    rate_mbps: float | None
    buffer_bytes: int
    mtu: int = 1500
    delay: LinkDelay = NO_DELAY

    @property
    def is_bridged(self) -> bool:
        """Return whether a bridge, rather than redirects, joins the inner ends."""
        return self.rate_mbps is not None and self.mtu > ONE_BUFFER_MTU


@dataclass(frozen=True, slots=True)
class HostAddress:
    """The addresses of a host's interface. `neighbours` are (IPv4 address, MAC), the gateway included."""

    namespace: str
    device: str
    address: str
    prefix: int
    gateway: str
    neighbours: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WireStatistics:
    """Counters of a wire since it was made, by direction. Bytes include Ethernet headers; drops are frames.
    `device_drops` are those of the drops that did not occur at the two queues: a device had no room for a
    frame because its reader was late. `is_up` is False while the wire is set down.
    """

    rate_mbps: float | None
    bytes_ab: int
    bytes_ba: int
    drops_ab: int
    drops_ba: int
    backlog_ab_bytes: int
    backlog_ba_bytes: int
    device_drops: int = 0
    is_up: bool = True

    @property
    def drops(self) -> int:
        return self.drops_ab + self.drops_ba

    @property
    def backlog_bytes(self) -> int:
        return self.backlog_ab_bytes + self.backlog_ba_bytes


def _nobody_is_told(*_: object) -> None:
    pass


def check_rate(wire: WireSpec) -> None:
    """Raise SettingError for a rate that the kernel cannot represent within 0.5 %: it counts whole bytes per
    second and nanoseconds per frame.
    """
    if wire.rate_mbps is None:
        return
    bytes_per_s, frame_bytes = rate_bytes_per_s(wire.rate_mbps), wire.mtu + ETHERNET_BYTES
    frame_ns = frame_bytes * 10**9 // bytes_per_s if bytes_per_s > 0 else 0
    nearest_mbps = frame_bytes * 8e3 / max(frame_ns, 1) if bytes_per_s > 0 else 0.0
    if abs(nearest_mbps - wire.rate_mbps) > _RATE_ERROR * wire.rate_mbps:
        raise SettingError(
            f"link {wire.name}: {wire.rate_mbps:g} Mb/s was asked for, and the nearest that the kernel can "
            f"set is {nearest_mbps:g} Mb/s"
        )


def inner_devices(wire: WireSpec) -> tuple[str, str]:
    """Return the inner ends' names in namespace `wires`: the one facing end a, and the one facing end b."""
    return f"{wire.name}-a", f"{wire.name}-b"


def _bridge(wire: WireSpec) -> str:
    return f"{wire.name}-w"


def set_offloads(device: str, gro: bool, namespace: int | None = None) -> None:
    """Restore the fabric's offload settings of a device, and read them back.

    Call after attaching an XDP program: the kernel may switch GRO on with it.
    """
    if namespace is None:
        with FeatureControl() as control:
            control.set(device, wire_features(gro))
        return
    with entered(namespace), FeatureControl() as control:
        control.set(device, wire_features(gro))


def device_drops(namespace: int, device: str) -> int:
    """Count the frames that a device of this namespace failed to pass on."""
    with entered(namespace):
        route = RouteSocket()
    with route:
        return route.devices()[device].tx_dropped


class Wires:
    """All wires of a fabric. `namespaces` must contain `wires` and every namespace that an end names."""

    def __init__(self, namespaces: NetworkNamespaces, wires: Sequence[WireSpec]) -> None:
        self._namespaces = namespaces
        # changing a rate or a delay replaces the wire here and in `_shaped`; delays begin by `set_delays`
        self._wires = tuple(replace(wire, delay=NO_DELAY) for wire in wires)
        self._shaped = [wire for wire in self._wires if wire.rate_mbps is not None]
        self._inner = {
            device: _INNER_IFINDEX + at
            for at, device in enumerate(device for wire in self._shaped for device in inner_devices(wire))
        }
        self._root = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._route = RouteSocket()
        self._counting = threading.Lock()  # a socket allows one dump at a time
        self._last: dict[str, WireStatistics] = {}  # latest statistics of each wire
        self._gone: dict[str, str] = {}  # by wire, the device missing at the latest reading
        self._down: set[str] = set()  # wires that were set down, read back
        self._stage: DelayStage | None = None  # of a kernel without netem, once a wire has a delay
        self.follow_delay: Callable[[int, bool], None] = _nobody_is_told  # LinkFaults.follow_delay
        self.follow_delays: Callable[[Mapping[str, LinkDelay]], None] = _nobody_is_told  # by wire
        self._checked: dict[str, set[str]] = {}  # why hosts make the checksums themselves, by wire
        self._checking = threading.Lock()  # guards the field above
        with entered(namespaces[WIRES]):
            self._wires_route = RouteSocket()

    def close(self, leaves_devices: bool = False) -> None:
        """Delete the switch ports, and with them their peers, unless the namespace's end deletes them; the
        rest goes with its own namespaces.
        """
        with self._route, self._wires_route:
            if self._stage:
                self._stage.close()
            made = [] if leaves_devices else self._route.devices()
            if any(wire.a.device in made or wire.b.device in made for wire in self._wires):
                self._route.send([delete_group(FABRIC_GROUP)])
            os.close(self._root)

    def make(self, progress: Progress) -> None:
        """Create, configure and start every wire, then read everything back. SettingError names the
        differences.
        """
        for wire in self._shaped:
            check_rate(wire)
        for start in range(0, len(self._wires), _CHUNK):
            chunk = self._wires[start : start + _CHUNK]
            messages: list[Message] = []
            for at, wire in enumerate(chunk, start):
                messages.extend(self._creation(wire, at))
            self._route.send(messages)
            progress("links", min(start + _CHUNK, len(self._wires)), len(self._wires))
        with FeatureControl() as control:
            for device in self._root_devices():
                control.set(device, wire_features(gro=False))
        with entered(self._namespaces[WIRES]), FeatureControl() as control:
            for device in self._inner:
                control.set(device, wire_features(gro=True))
        self._wires_route.send([set_merging(ifindex, _MERGE_NOTHING) for ifindex in self._inner.values()])
        self._shape(progress)
        self._route.send([set_up(device) for device in self._root_devices()])
        self._wires_route.send([set_up(device) for device in self._inner])
        self.check()

    def _root_devices(self) -> list[str]:
        return [end.device for wire in self._wires for end in (wire.a, wire.b) if end.namespace is None]

    def _creation(self, wire: WireSpec, at: int) -> list[Message]:
        def outer(end: WireEnd, side: int) -> DeviceSpec:
            namespace = self._root if end.namespace is None else self._namespaces[end.namespace]
            return DeviceSpec(
                end.device, namespace, wire.mtu, end.mac, end.ifindex or _PORT_IFINDEX + 2 * at + side
            )

        if wire.rate_mbps is None:
            return [add_veth(outer(wire.a, 0), outer(wire.b, 1))]
        inner = [
            DeviceSpec(device, self._namespaces[WIRES], wire.mtu, None, self._inner[device])
            for device in inner_devices(wire)
        ]
        return [add_veth(outer(wire.a, 0), inner[0]), add_veth(outer(wire.b, 1), inner[1])]

    def _shape(self, progress: Progress) -> None:
        if not self._shaped:
            return
        classifier = "" if all(wire.is_bridged for wire in self._shaped) else self._classifier()
        for start in range(0, len(self._shaped), _CHUNK):
            messages: list[Message] = []
            for at, wire in enumerate(self._shaped[start : start + _CHUNK], start):
                a, b = (self._inner[device] for device in inner_devices(wire))
                rate_mbps, bridge = wire.rate_mbps or 0.0, _BRIDGE_IFINDEX + at
                if wire.is_bridged:
                    messages += add_bridge(_bridge(wire), bridge)
                for ifindex, other in ((a, b), (b, a)):
                    rate, burst = rate_bytes_per_s(rate_mbps), burst_bytes(rate_mbps, wire.mtu)
                    messages.append(add_token_bucket(ifindex, rate, burst, wire.buffer_bytes))
                    messages.append(add_ingress(ifindex))
                    joined = add_redirect(ifindex, other, classifier)
                    messages += join_bridge(ifindex, bridge) if wire.is_bridged else [joined]
            self._wires_route.send(messages)
            progress("shapers", min(start + _CHUNK, len(self._shaped)), len(self._shaped))

    def _classifier(self) -> str:
        """Find the classifier that this kernel supports, by trying it on a temporary pair of devices."""
        namespace = self._namespaces[WIRES]
        pair = [DeviceSpec(f"probe-{side}", namespace, 1500, None, 0x10 + at) for at, side in enumerate("ab")]
        self._wires_route.send([add_veth(*pair), add_ingress(pair[0].ifindex)])
        reasons = []
        try:
            for classifier in ("matchall", "u32"):
                try:
                    self._wires_route.send([add_redirect(pair[0].ifindex, pair[1].ifindex, classifier)])
                    return classifier
                except NetlinkError as error:
                    if not is_missing_feature(error):
                        raise
                    reasons.append(str(error))
        finally:
            self._wires_route.send([delete_device(pair[0].name)])
        raise HostError(
            f"this kernel cannot redirect frames between devices, which shaped links need: "
            f"{'; '.join(reasons)}"
        )

    def check(self) -> None:
        """Read every wire's devices, rates and buffers back. SettingError names the link, the setting and the
        actual value.
        """
        root, inner = self._route.devices(), self._wires_route.devices()
        buckets, merging = self._wires_route.token_buckets(), self._wires_route.merging()
        for wire in self._wires:
            for end in (wire.a, wire.b):
                if end.namespace is None:
                    _check_device(root, end.device, wire.mtu)
            if wire.rate_mbps is None:
                continue
            for device in inner_devices(wire):
                _check_device(inner, device, wire.mtu)
                ifindex = self._inner[device]
                check_bucket(wire, device, buckets.get(ifindex))
                if merging.get(ifindex) != _MERGE_NOTHING:
                    reads = f"up to {merging[ifindex]} bytes" if ifindex in merging else "no such setting"
                    raise SettingError(
                        f"link {wire.name}: {device} was set to merge no frames and reads back {reads}; "
                        f"Linux 5.19 or later is needed"
                    )

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        """Change the rates of shaped wires, by name, in both directions, and read them back; nothing queued
        is lost.

        RequestError for an unknown wire or one made without a rate, SettingError for a rate that did not take
        effect.
        """
        changed: dict[str, WireSpec] = {}
        messages: list[Message] = []
        with self._counting:
            shaped = {wire.name: wire for wire in self._shaped}
            for name, rate_mbps in rates_mbps.items():
                if name not in shaped:
                    raise RequestError(
                        f"link {name}: no link with a rate of that name; there are {', '.join(shaped)}"
                    )
                wire = changed[name] = replace(shaped[name], rate_mbps=rate_mbps)
                check_rate(wire)
                rate, burst = rate_bytes_per_s(rate_mbps), burst_bytes(rate_mbps, wire.mtu)
                for device in inner_devices(wire):
                    ifindex = self._inner[device]
                    messages.append(change_token_bucket(ifindex, rate, burst, wire.buffer_bytes))
                    if wire.delay != NO_DELAY and not self._stage:
                        # the rate determines how many frames are under way
                        messages.append(set_delay(ifindex, wire.delay, _room(wire)))
            self._wires_route.send(messages)
            self._take(changed)
            for wire in changed.values():
                if wire.delay != NO_DELAY and self._stage:
                    self._set_at_stage(wire)
            buckets = self._wires_route.token_buckets()
        for wire in changed.values():
            for device in inner_devices(wire):
                check_bucket(wire, device, buckets.get(self._inner[device]))

    def _take(self, changed: Mapping[str, WireSpec]) -> None:
        self._wires = tuple(changed.get(wire.name, wire) for wire in self._wires)
        self._shaped = [changed.get(wire.name, wire) for wire in self._shaped]

    def set_delays(self, names: Sequence[str], delay: LinkDelay) -> None:
        """Set the delay of shaped wires, in both directions, and read it back: by the kernel's netem, or by a
        DelayStage if this kernel has none. With netem, queued frames are lost where a delay begins or ends.
        SettingError for a delay that did not take effect.
        """
        with self._counting:
            changed = [
                replace(wire, delay=delay)
                for wire in self._shaped
                if wire.name in names and wire.delay != delay
            ]
            has_netem = self._stage is None and self._delay_by_netem(changed)
            for wire in changed:
                if not has_netem:
                    self._delay_by_stage(wire)
                self._take({wire.name: wire})
            read = delays(self._wires_route) if has_netem else {}
        for wire in changed if has_netem else ():
            for device in inner_devices(wire):
                check_delay(wire, device, read.get(self._inner[device]))
        self.follow_delays({wire.name: wire.delay for wire in changed})

    def _delay_by_netem(self, wires: Sequence[WireSpec]) -> bool:
        """Set or end delays by netem; return whether this kernel has it. If not, nothing has changed."""
        messages = [
            end_delay(self._inner[device], wire.buffer_bytes)
            if wire.delay == NO_DELAY
            else set_delay(self._inner[device], wire.delay, _room(wire))
            for wire in wires
            for device in inner_devices(wire)
        ]
        try:
            self._wires_route.send(messages)
        except NetlinkError as error:
            if is_missing_feature(error):
                return False
            raise
        return True

    def _delay_by_stage(self, wire: WireSpec) -> None:
        """Set or end a wire's delay at the stage. While frames go through it, hosts make their checksums."""
        if wire.delay == NO_DELAY:
            self._set_at_stage(wire)
            self._host_makes_checksums(wire, "delay", False)
            return
        self._host_makes_checksums(wire, "delay", True)
        try:
            self._set_at_stage(wire)
        except BaseException:
            self._set_at_stage(replace(wire, delay=NO_DELAY))
            self._host_makes_checksums(wire, "delay", False)
            raise

    def _set_at_stage(self, wire: WireSpec) -> None:
        if self._stage is None:
            mtu = max(each.mtu for each in self._shaped)
            self._stage = DelayStage(self._namespaces[WIRES], mtu)
        ends = [self._inner[device] for device in inner_devices(wire)]
        room = room_bytes(wire.delay, rate_bytes_per_s(wire.rate_mbps or 0.0), wire.buffer_bytes)
        for ifindex, egress in (ends, ends[::-1]):
            if wire.delay != NO_DELAY:
                self.follow_delay(ifindex, True)
            self._stage.set(DelayedEnd(ifindex, egress, ifindex - _INNER_IFINDEX, room), wire.delay)
            if wire.delay == NO_DELAY:
                self.follow_delay(ifindex, False)

    def delays(self) -> dict[str, LinkDelay]:
        """Return the delays of the wires that have one, by name."""
        return {wire.name: wire.delay for wire in self._shaped if wire.delay != NO_DELAY}

    def set_links(self, names: Sequence[str], is_up: bool) -> None:
        """Set shaped wires up or down, by name, and read that back. Both ends of a wire that is down have no
        carrier, as with a pulled fibre, and queued frames are lost. SettingError if a device did not follow.
        """
        change = set_up if is_up else set_down
        with self._counting:
            devices = {name: inner_devices(wire) for wire in self._shaped if (name := wire.name) in names}
            self._wires_route.send([change(device) for pair in devices.values() for device in pair])
            follows = {
                device: self._wires_route.is_up(device) == is_up
                for pair in devices.values()
                for device in pair
            }
            self._down = self._down - devices.keys() if is_up else self._down | devices.keys()
        for name, pair in devices.items():
            for device in pair:
                if not follows[device]:
                    words = ("up", "down") if is_up else ("down", "up")
                    raise SettingError(
                        f"link {name}: it was set {words[0]}, and {device} reads back {words[1]}"
                    )

    def configure_hosts(self, hosts: Sequence[HostAddress], progress: Progress) -> None:
        """Set offloads, addresses, route and neighbours of every host; read back settings that can fail
        silently.
        """
        wires = {(end.namespace, end.device): wire for wire in self._wires for end in (wire.a, wire.b)}
        for at, host in enumerate(hosts, 1):
            with entered(self._namespaces[host.namespace]):
                route, control = RouteSocket(), FeatureControl()
            with route, control:
                wire = wires[host.namespace, host.device]
                leaves_checksums = wire.rate_mbps is not None
                control.set(host.device, wire_features(gro=False, leaves_checksums=leaves_checksums))
                ifindex = route.devices()[host.device].ifindex
                route.send(
                    [
                        set_up("lo"),
                        add_address(ifindex, host.address, host.prefix),
                        set_up(host.device),
                        add_default_route(host.gateway),
                        *(add_neighbour(ifindex, address, mac) for address, mac in host.neighbours),
                    ]
                )
                _check_device(route.devices(), host.device, wire.mtu)
            if at % _CHUNK == 0 or at == len(hosts):
                progress("hosts", at, len(hosts))

    def make_checksums(self, name: str, in_host: bool) -> None:
        """Let hosts compute the checksums of what they send over a shaped wire themselves, or leave them to
        the end behind the token bucket. SettingError if a host's interface does not follow.
        """
        (wire,) = (wire for wire in self._shaped if wire.name == name)
        self._host_makes_checksums(wire, "fault", in_host)

    def _host_makes_checksums(self, wire: WireSpec, reason: str, in_host: bool) -> None:
        """Add or remove a reason for which hosts make the checksums of a wire themselves."""
        with self._checking:
            before = self._checked.get(wire.name, set())
            reasons = before | {reason} if in_host else before - {reason}
            for end in (wire.a, wire.b):
                if end.namespace is None or bool(reasons) == bool(before):
                    continue
                try:
                    with entered(self._namespaces[end.namespace]), FeatureControl() as control:
                        control.set(end.device, {CHECKSUMS: not reasons})
                except OSError as error:
                    raise SettingError(
                        f"link {wire.name}: who makes the checksums of {end.device} in {end.namespace}: "
                        f"{error.strerror}"
                    ) from error
            self._checked[wire.name] = reasons

    def watch(self) -> None:
        """Raise TestbedError if the thread that delays frames has ended."""
        if self._stage:
            self._stage.watch()

    def statistics(self, queues_only: bool = False) -> dict[str, WireStatistics]:
        """Return the counters of every wire, by name, in three kernel calls for any number of wires.
        Thread-safe.

        Drops are those of the queues and of the devices in the namespaces `wires` and root. A frame that a
        host's own interface failed to pass on is counted on that interface only. With `queues_only` the
        devices of shaped wires are not read: for 256 hosts 7 ms instead of 52. A wire with a deleted device
        keeps its previous counters (`gone`).
        """
        with self._counting:
            everything = not (queues_only and self._shaped)
            root = self._route.devices() if everything or len(self._shaped) < len(self._wires) else {}
            inner = self._wires_route.devices() if self._shaped and everything else {}
            buckets = self._wires_route.token_buckets() if self._shaped else {}
            held_up = self._stage.lost(inner) if self._stage and everything else {}
        statistics, gone = {}, {}
        for wire in self._wires:
            try:
                statistics[wire.name] = self._read(
                    wire, root, inner, buckets, held_up if everything else None
                )
            except KeyError as missing:
                gone[wire.name] = self._end_behind(wire, missing.args[0])
                nothing = WireStatistics(wire.rate_mbps, 0, 0, 0, 0, 0, 0)
                statistics[wire.name] = replace(self._last.get(wire.name, nothing), rate_mbps=wire.rate_mbps)
        self._last, self._gone = statistics, gone
        return statistics

    @property
    def gone(self) -> dict[str, str]:
        """The wires that lacked a device at the latest reading, with that device, by name."""
        return self._gone

    def _end_behind(self, wire: WireSpec, device: str | int) -> str:
        """Return the device at the end of a wire that belongs to one of its inner devices, given by name or
        ifindex.
        """
        for inner, end in zip(inner_devices(wire), (wire.a, wire.b), strict=True):
            if device in (inner, self._inner.get(inner)):
                return end.device
        return str(device)

    def _read(
        self,
        wire: WireSpec,
        root: Mapping[str, DeviceState],
        inner: Mapping[str, DeviceState],
        buckets: Mapping[int, QueueState],
        held_up: Mapping[int, int] | None,
    ) -> WireStatistics:
        """Make a wire's counters from the readings; `held_up` are the losses of the DelayStage, None: devices
        were not read. KeyError if one of the wire's devices is missing.
        """
        if wire.rate_mbps is None:
            port, ab = (wire.b, True) if wire.b.namespace is None else (wire.a, False)
            state = root[port.device]
            towards_b, towards_a = (
                (state.rx_bytes, state.tx_bytes) if ab else (state.tx_bytes, state.rx_bytes)
            )
            lost_b, lost_a = (
                (state.rx_dropped, state.tx_dropped) if ab else (state.tx_dropped, state.rx_dropped)
            )
            return WireStatistics(None, towards_b, towards_a, lost_b, lost_a, 0, 0, lost_b + lost_a)
        device_a, device_b = inner_devices(wire)
        index_a, index_b = self._inner[device_a], self._inner[device_b]
        at_a, at_b = buckets[index_a], buckets[index_b]
        late_b = late_a = 0
        if held_up is not None:
            # frames that enter at one end, or leave the shaper at the other, and find no room
            late_b = inner[device_b].tx_dropped + _lost_at(wire.a, root) + held_up.get(index_a, 0)
            late_a = inner[device_a].tx_dropped + _lost_at(wire.b, root) + held_up.get(index_b, 0)
        return WireStatistics(
            rate_mbps=wire.rate_mbps,
            bytes_ab=at_b.sent_bytes,
            bytes_ba=at_a.sent_bytes,
            drops_ab=at_b.drops + late_b,
            drops_ba=at_a.drops + late_a,
            backlog_ab_bytes=at_b.backlog_bytes,
            backlog_ba_bytes=at_a.backlog_bytes,
            device_drops=late_b + late_a,
            is_up=wire.name not in self._down,
        )


def _lost_at(end: WireEnd, root: Mapping[str, DeviceState]) -> int:
    return root[end.device].tx_dropped if end.namespace is None else 0


def check_bucket(wire: WireSpec, device: str, bucket: QueueState | None) -> None:
    """Raise SettingError if an inner end's token bucket, as read back, differs from the wire's."""
    rate_mbps = wire.rate_mbps or 0.0
    if bucket is None:
        raise SettingError(f"link {wire.name}: {rate_mbps:g} Mb/s was set, and {device} reads back no rate")
    if (bucket.rate_bytes_per_s, bucket.limit_bytes) != (rate_bytes_per_s(rate_mbps), wire.buffer_bytes):
        raise SettingError(
            f"link {wire.name}: {rate_mbps:g} Mb/s with a buffer of {wire.buffer_bytes} bytes was set, and "
            f"{device} reads back "
            f"{bucket.rate_bytes_per_s * 8 / 1e6:g} Mb/s, {bucket.limit_bytes} bytes"
        )


def check_delay(wire: WireSpec, device: str, read: tuple[int, int] | None) -> None:
    """Raise SettingError if an inner end's delay, read back as (delay, jitter) in nanoseconds, differs from
    the wire's.
    """
    if read != (None if wire.delay == NO_DELAY else wire.delay.nanoseconds):
        back = "no delay" if read is None else f"{LinkDelay(read[0] / 1e6, read[1] / 1e6)}"
        raise SettingError(
            f"link {wire.name}: a delay of {wire.delay} was set, and {device} reads back {back}"
        )


def _room(wire: WireSpec) -> int:
    rate_mbps = wire.rate_mbps or 0.0
    frame_bytes = wire.mtu + ETHERNET_BYTES
    return room_packets(wire.delay, rate_bytes_per_s(rate_mbps), wire.buffer_bytes, frame_bytes)


def _check_device(devices: dict[str, DeviceState], name: str, mtu: int) -> None:
    state = devices.get(name)
    if state is None:
        raise SettingError(f"device {name} was made and is not there")
    if state.mtu != mtu:
        raise SettingError(f"device {name}: MTU {mtu} was set and reads back {state.mtu}")
    if not state.up:
        raise SettingError(f"device {name} was set up and reads back down")
