"""Route netlink in batches: devices, addresses, neighbours, routes, queues and filters of one network
namespace.

Owns the encoding of the messages and the socket. A socket stays in the network namespace in which it was
opened; a device is created directly in its final namespace. Measured at 256 hosts: one process per namespace
(`ip -n NAME -batch -`) costs 2.3 ms a namespace before any work; this costs 0.2 ms. Moving a device after its
creation costs 25 ms, so nothing moves.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.errors import TestbedError

# <linux/rtnetlink.h>
_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_NEWADDR, _NEWROUTE, _NEWNEIGH = 20, 24, 28
_NEWQDISC, _GETQDISC = 36, 38
_NEWTFILTER, _DELTFILTER, _GETTFILTER = 44, 45, 46
_REQUEST, _ACK, _DUMP, _EXCL, _CREATE, _REPLACE = 0x1, 0x4, 0x300, 0x200, 0x400, 0x100
_DUMP_INTERRUPTED = 0x10
_ERROR, _DONE = 2, 3
_NESTED = 0x8000
_IFF_UP = 0x1
_GET_FLAGS = 0x8913  # SIOCGIFFLAGS of <linux/sockios.h>
_NUD_PERMANENT = 0x80
_ETH_P_ALL = 0x0003
TC_ROOT = 0xFFFFFFFF
TC_INGRESS = 0xFFFFFFF1
INGRESS = 0xFFFF0000
EGRESS = 0xFFFFFFF3
_END = {INGRESS: "the ingress", EGRESS: "the egress"}
_SHAPER_HANDLE = 0x10000
# of filters on one ingress: the lower is asked first
FAULT_PRIORITY, MARK_PRIORITY, DELAY_PRIORITY, _REDIRECT_PRIORITY = range(1, 5)
APART_PRIORITY = 1
FABRIC_GROUP, ADOPTED_GROUP = (
    0x6F70,
    0x6F71,
)  # device groups, each deleted by one request: of what add_veth made, and others
_BATCH = 48  # messages per send: the acknowledgements fit the default receive buffer
_RECEIVE_BYTES = 1 << 20
_ANSWER_S = 30
_DUMPS = 16  # attempts at one list, if devices come and go meanwhile


class NetlinkError(TestbedError):
    """The kernel refused a message, or a message could not be sent, or its answer is incomplete."""

    def __init__(self, what: str, code: int, detail: str) -> None:
        reason = detail or os.strerror(code)
        super().__init__(f"{what}: {reason}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Message:
    """One request, and its purpose in words."""

    kind: int
    flags: int
    body: bytes
    what: str


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One end of a veth pair, as it is created."""

    name: str
    namespace: int
    mtu: int
    mac: str | None = None
    ifindex: int = 0
    txqueuelen: int = 1000


@dataclass(frozen=True, slots=True)
class AttachedProgram:
    """An XDP program on a device: the kernel's id of it, and whether it runs in generic mode."""

    number: int
    is_generic: bool


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device's state in the kernel. Counters are bytes and packets since its creation."""

    name: str
    ifindex: int
    mtu: int
    up: bool
    mac: str
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int
    xdp: AttachedProgram | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """A token bucket's state in the kernel: its rate and limit, and its counters since its creation."""

    ifindex: int
    rate_bytes_per_s: int
    limit_bytes: int
    sent_bytes: int
    drops: int
    backlog_bytes: int


def attribute(kind: int, value: bytes) -> bytes:
    """Encode a netlink attribute, padded to 4 bytes."""
    return struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """Decode the attributes at the end of a message, by kind, without the nesting bits."""
    values: dict[int, bytes] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        values[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return values


def _nested(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | _NESTED, b"".join(parts))


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def _mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _ip(address: str) -> bytes:
    return ipaddress.IPv4Address(address).packed


def _link_header(ifindex: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", 0, 0, ifindex, flags, change)


def _device_attributes(device: DeviceSpec) -> bytes:
    parts = [
        attribute(3, device.name.encode() + b"\0"),  # IFLA_IFNAME
        _u32(4, device.mtu),
        _u32(13, device.txqueuelen),
        _u32(27, FABRIC_GROUP),  # IFLA_GROUP
        _u32(28, device.namespace),  # IFLA_NET_NS_FD
        _u32(31, 1),  # IFLA_NUM_TX_QUEUES
        _u32(32, 1),  # IFLA_NUM_RX_QUEUES
    ]
    if device.mac:
        parts.append(attribute(1, _mac(device.mac)))
    return b"".join(parts)


def add_veth(a: DeviceSpec, b: DeviceSpec) -> Message:
    """Add a veth pair, each end directly in its final namespace. Send it from a namespace that has neither
    name.
    """
    peer = _nested(1, _link_header(b.ifindex), _device_attributes(b))  # VETH_INFO_PEER
    info = _nested(18, attribute(1, b"veth"), _nested(2, peer))  # IFLA_LINKINFO: kind, data
    body = _link_header(a.ifindex) + _device_attributes(a) + info
    return Message(_NEWLINK, _CREATE | _EXCL, body, f"add veth {a.name} - {b.name}")


def add_bridge(name: str, ifindex: int) -> list[Message]:
    """Add a bridge that is up, without multicast snooping: it sends multicast to all its ports."""
    data = attribute(23, b"\0")  # IFLA_BR_MCAST_SNOOPING
    info = _nested(18, attribute(1, b"bridge"), _nested(2, data))  # IFLA_LINKINFO: kind, data
    named = attribute(3, name.encode() + b"\0")
    return [
        Message(_NEWLINK, _CREATE | _EXCL, _link_header(ifindex) + named + info, f"add bridge {name}"),
        set_up(name),
    ]


def join_bridge(ifindex: int, bridge: int) -> list[Message]:
    """Make a device a port of a bridge without address learning: frames that arrive at one port leave by all
    others.
    """
    port = attribute(8, b"\0")  # IFLA_BRPORT_LEARNING
    info = _nested(18, attribute(4, b"bridge"), _nested(5, port))  # IFLA_LINKINFO: slave's kind, slave's data
    what = f"join device {ifindex} to bridge {bridge}"
    return [
        Message(_NEWLINK, 0, _link_header(ifindex) + _u32(10, bridge), what),  # IFLA_MASTER
        Message(_NEWLINK, 0, _link_header(ifindex) + info, f"{what}, which is to learn nothing"),
    ]


def delete_device(name: str) -> Message:
    return Message(_DELLINK, 0, _link_header() + attribute(3, name.encode() + b"\0"), f"delete {name}")


def set_group(name: str, group: int) -> Message:
    body = _link_header() + attribute(3, name.encode() + b"\0") + _u32(27, group)
    return Message(_NEWLINK, 0, body, f"put {name} into group {group}")


def delete_group(group: int) -> Message:
    """Delete the devices of a group in the socket's namespace; the kernel waits once for all of them. ENODEV
    if there are none.
    """
    return Message(_DELLINK, 0, _link_header() + _u32(27, group), f"delete device group {group}")


def set_up(name: str) -> Message:
    body = _link_header(0, _IFF_UP, _IFF_UP) + attribute(3, name.encode() + b"\0")
    return Message(_NEWLINK, 0, body, f"set {name} up")


def set_down(name: str) -> Message:
    body = _link_header(0, 0, _IFF_UP) + attribute(3, name.encode() + b"\0")
    return Message(_NEWLINK, 0, body, f"set {name} down")


def add_address(ifindex: int, address: str, prefix: int) -> Message:
    header = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, ifindex)
    body = header + attribute(1, _ip(address)) + attribute(2, _ip(address))
    return Message(_NEWADDR, _CREATE | _EXCL, body, f"add address {address}/{prefix}")


def add_default_route(gateway: str) -> Message:
    header = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0
    )  # table main, protocol boot, unicast
    return Message(
        _NEWROUTE, _CREATE | _EXCL, header + attribute(5, _ip(gateway)), f"add default route by {gateway}"
    )


def add_neighbour(ifindex: int, address: str, mac: str) -> Message:
    header = struct.pack("=BxHiHBB", socket.AF_INET, 0, ifindex, _NUD_PERMANENT, 0, 0)
    body = header + attribute(1, _ip(address)) + attribute(2, _mac(mac))
    return Message(_NEWNEIGH, _CREATE | _REPLACE, body, f"add neighbour {address}")


def _tc_header(ifindex: int, handle: int, parent: int, info: int = 0) -> bytes:
    return struct.pack("=BxHiIII", 0, 0, ifindex, handle, parent, info)


def add_token_bucket(ifindex: int, rate_bytes_per_s: int, burst_bytes: int, limit_bytes: int) -> Message:
    """Add a TBF at a device's root. Rates up to 34 Gb/s fit the 32-bit field; higher ones use the 64-bit
    attribute.
    """
    return _token_bucket(ifindex, rate_bytes_per_s, burst_bytes, limit_bytes, _CREATE | _EXCL)


def change_token_bucket(ifindex: int, rate_bytes_per_s: int, burst_bytes: int, limit_bytes: int) -> Message:
    """Change the parameters of a device's TBF. Queued frames stay: the kernel changes the limit of its queue
    in place.
    """
    return _token_bucket(ifindex, rate_bytes_per_s, burst_bytes, limit_bytes, 0)


def _token_bucket(
    ifindex: int, rate_bytes_per_s: int, burst_bytes: int, limit_bytes: int, flags: int
) -> Message:
    narrow = min(rate_bytes_per_s, 0xFFFFFFFF)
    rate = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, narrow)  # linklayer Ethernet: no rate table
    parms = rate + bytes(12) + struct.pack("=III", limit_bytes, 0, 0)
    options = [attribute(1, parms), _u32(6, burst_bytes)]
    if rate_bytes_per_s > 0xFFFFFFFF:
        options.append(attribute(4, struct.pack("=Q", rate_bytes_per_s)))
    body = _tc_header(ifindex, _SHAPER_HANDLE, TC_ROOT) + attribute(1, b"tbf\0") + _nested(2, *options)
    return Message(_NEWQDISC, flags, body, f"shape device {ifindex} to {rate_bytes_per_s * 8 / 1e6:g} Mb/s")


def add_queue(ifindex: int, kind: str, handle: int, options: bytes, what: str) -> Message:
    """Add a queue discipline inside the TBF at a device's root, in place of the present one, whose queued
    frames are lost. One with the same handle is only changed, and loses nothing.
    """
    body = _tc_header(ifindex, handle, _SHAPER_HANDLE | 1) + attribute(1, kind.encode() + b"\0")
    return Message(_NEWQDISC, _CREATE | _REPLACE, body + attribute(2, options), what)


def add_ingress(ifindex: int) -> Message:
    body = _tc_header(ifindex, INGRESS, TC_INGRESS) + attribute(1, b"ingress\0")
    return Message(_NEWQDISC, _CREATE | _EXCL, body, f"add the ingress queue of device {ifindex}")


def add_redirect(ifindex: int, to_ifindex: int, classifier: str) -> Message:
    """Redirect every frame that arrives on a device to leave by another. `classifier`: "matchall" or "u32",
    as the kernel supports.
    """
    parms = struct.pack("=IIiiiiI", 0, 0, 4, 0, 0, 1, to_ifindex)  # TC_ACT_STOLEN, TCA_EGRESS_REDIR
    action = _nested(1, attribute(1, b"mirred\0"), _nested(2, attribute(2, parms)))
    if classifier == "u32":
        key = struct.pack("=IIii", 0, 0, 0, 0)
        selector = (
            struct.pack("=BBBxHHhhI", 1, 0, 1, 0, 0, 0, 0, 0) + key
        )  # terminal, one key that always matches
        options = _nested(2, attribute(5, selector), _nested(7, action))
    else:
        options = _nested(2, _nested(2, action))
    body = _filter_header(ifindex, _REDIRECT_PRIORITY) + attribute(1, classifier.encode() + b"\0") + options
    return Message(
        _NEWTFILTER, _CREATE | _EXCL, body, f"redirect device {ifindex} to {to_ifindex} by {classifier}"
    )


def _filter_header(ifindex: int, priority: int, parent: int = INGRESS) -> bytes:
    return _tc_header(ifindex, 0, parent, (priority << 16) | socket.htons(_ETH_P_ALL))


def add_program(ifindex: int, program: int, name: str, priority: int, parent: int = INGRESS) -> Message:
    """Attach a BPF program, by descriptor, that decides about every frame that arrives, before the redirect,
    or that is sent (EGRESS).
    """
    options = _nested(2, _u32(6, program), attribute(7, name.encode() + b"\0"), _u32(8, 1))  # direct action
    body = _filter_header(ifindex, priority, parent) + attribute(1, b"bpf\0") + options
    return Message(_NEWTFILTER, _CREATE | _EXCL, body, f"attach {name} to {_END[parent]} of device {ifindex}")


def add_gate(ifindex: int) -> Message:
    """Add the clsact queue discipline, to which programs for sent and received frames attach."""
    body = _tc_header(ifindex, INGRESS, TC_INGRESS) + attribute(1, b"clsact\0")
    return Message(_NEWQDISC, _CREATE | _EXCL, body, f"add the gate of device {ifindex}")


def delete_program(ifindex: int, priority: int, parent: int = INGRESS) -> Message:
    body = _filter_header(ifindex, priority, parent)
    return Message(_DELTFILTER, 0, body, f"detach the program at {_END[parent]} of device {ifindex}")


def set_merging(ifindex: int, limit_bytes: int) -> Message:
    """Limit the length of packets that receive offload (GRO) merges; below a frame's length, none
    are merged.
    """
    body = _link_header(ifindex) + _u32(58, limit_bytes)  # IFLA_GRO_MAX_SIZE; for IPv4 too up to 65536
    return Message(
        _NEWLINK, 0, body, f"set the longest merged packet of device {ifindex} to {limit_bytes} bytes"
    )


class RouteSocket:
    """A route netlink socket in the calling thread's network namespace."""

    def __init__(self) -> None:
        self._sequence = 0
        with _asking("open a route netlink socket"), contextlib.ExitStack() as undo:
            self._socket = undo.enter_context(
                socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            )
            self._socket.bind((0, 0))
            self._socket.settimeout(_ANSWER_S)
            for option in (10, 11):  # NETLINK_CAP_ACK, NETLINK_EXT_ACK: short acknowledgements, with reasons
                self._socket.setsockopt(270, option, 1)
            undo.pop_all()

    def __enter__(self) -> RouteSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, messages: Sequence[Message]) -> None:
        """Execute all messages in order. Raises NetlinkError for the first that the kernel refuses."""
        for start in range(0, len(messages), _BATCH):
            self._send_batch(messages[start : start + _BATCH])

    def delete(self, device: str) -> None:
        """Delete a device; do nothing if it is gone."""
        try:
            self.send([delete_device(device)])
        except NetlinkError as error:
            if error.code != errno.ENODEV:
                raise

    def _send_batch(self, batch: Sequence[Message]) -> None:
        """Send a batch, and wait for the acknowledgement of each message. Other answers belong to abandoned
        requests, and are ignored.
        """
        data = b"".join(self._encode(message) for message in batch)
        waiting = dict(enumerate(batch, self._sequence - len(batch) + 1))
        failure: NetlinkError | None = None
        with _asking(batch[0].what):
            self._socket.send(data)
        while waiting:
            what = next(iter(waiting.values())).what
            for kind, flags, sequence, body in self._received(what):
                if kind == _ERROR and sequence in waiting:
                    message = waiting.pop(sequence)
                    code = -struct.unpack_from("=i", body)[0]
                    if code and failure is None:
                        failure = NetlinkError(message.what, code, _reason(flags, body))
        if failure:
            raise failure

    def _received(self, what: str) -> list[tuple[int, int, int, bytes]]:
        """Return the messages of the next datagram. NetlinkError if it is truncated."""
        with _asking(what):
            data, _, flags, _ = self._socket.recvmsg(_RECEIVE_BYTES)
        if flags & socket.MSG_TRUNC:
            raise NetlinkError(what, errno.EMSGSIZE, f"the answer has more than {_RECEIVE_BYTES} bytes")
        return list(_messages(data, what))

    def _encode(self, message: Message) -> bytes:
        self._sequence += 1
        flags = message.flags | _REQUEST | _ACK
        return (
            struct.pack("=IHHII", 16 + len(message.body), message.kind, flags, self._sequence, 0)
            + message.body
        )

    def _dump(self, kind: int, body: bytes, what: str) -> list[bytes]:
        """Return a list from the kernel; repeat if it changed meanwhile, since such a list may miss entries
        that were there all the time.
        """
        for _ in range(_DUMPS):
            listed, is_whole = self._dump_once(kind, body, what)
            if is_whole:
                return listed
        raise NetlinkError(what, errno.EINTR, f"what is listed changed during each of {_DUMPS} attempts")

    def _dump_once(self, kind: int, body: bytes, what: str) -> tuple[list[bytes], bool]:
        self._sequence += 1
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _DUMP, self._sequence, 0)
        with _asking(what):
            self._socket.send(head + body)
        listed: list[bytes] = []
        interrupted = 0
        while True:
            for answer, flags, sequence, content in self._received(what):
                if sequence != self._sequence:
                    continue
                interrupted |= flags & _DUMP_INTERRUPTED
                if answer in (_ERROR, _DONE):
                    # the end of a list carries its error, which the kernel may omit
                    code = -struct.unpack_from("=i", content)[0] if len(content) >= 4 else 0
                    if answer == _ERROR or code > 0:
                        raise NetlinkError(what, code, _reason(flags, content) if answer == _ERROR else "")
                    return listed, not interrupted
                listed.append(content)

    def devices(self) -> dict[str, DeviceState]:
        """Return every device of the namespace, by name."""
        states = {}
        for body in self._dump(_GETLINK, _link_header(), "list devices"):
            ifindex, flags = struct.unpack_from("=4xiI", body)
            values = attributes(body[16:])
            name = values[3].rstrip(b"\0").decode()
            counters = struct.unpack_from("=8Q", values[23])  # IFLA_STATS64
            _, _, rx_bytes, tx_bytes, _, _, rx_dropped, tx_dropped = counters
            mtu = struct.unpack("=I", values[4])[0]
            mac = values.get(1, b"").hex(":")
            up = bool(flags & _IFF_UP)
            states[name] = DeviceState(
                name,
                ifindex,
                mtu,
                up,
                mac,
                rx_bytes,
                tx_bytes,
                rx_dropped,
                tx_dropped,
                _xdp_of(values.get(43, b"")),
            )
        return states

    def is_up(self, device: str) -> bool:
        """Return whether one device of the namespace is set up. With hundreds of devices this is some
        hundred times as fast as `devices`.
        """
        with _asking(f"read the flags of {device}"):
            answer = fcntl.ioctl(self._socket, _GET_FLAGS, struct.pack("=16s24x", device.encode()))
        return bool(struct.unpack_from("=16xH", answer)[0] & _IFF_UP)

    def merging(self) -> dict[int, int]:
        """Return the longest IPv4 packet, in bytes, that receive offload may build, by ifindex of every
        device.
        """
        limits = {}
        for body in self._dump(_GETLINK, _link_header(), "list devices"):
            values = attributes(body[16:])
            limit = values.get(64) or values[58]  # IFLA_GRO_IPV4_MAX_SIZE from Linux 6.3 on
            limits[struct.unpack_from("=4xi", body)[0]] = struct.unpack("=I", limit)[0]
        return limits

    def programs(self, ifindex: int, priority: int, parent: int = INGRESS) -> list[int]:
        """Return the kernel's ids of the BPF programs of a priority at a device's ingress, or
        another parent.
        """
        numbers = []
        what = f"list the filters at {_END[parent]} of device {ifindex}"
        for body in self._dump(_GETTFILTER, _tc_header(ifindex, 0, parent), what):
            values = attributes(body[20:])
            at = struct.unpack_from("=I", body, 16)[0] >> 16
            if values.get(1, b"").rstrip(b"\0") == b"bpf" and 2 in values and at == priority:
                options = attributes(values[2])
                if 11 in options:  # TCA_BPF_ID
                    numbers.append(struct.unpack("=I", options[11])[0])
        return numbers

    def queues(self, kind: str) -> Iterator[tuple[int, dict[int, bytes]]]:
        """Yield every queue discipline of a kind in the namespace: its device's ifindex, and its
        attributes.
        """
        for body in self._dump(_GETQDISC, _tc_header(0, 0, 0), "list queues"):
            values = attributes(body[20:])
            if values.get(1, b"").rstrip(b"\0") == kind.encode():
                yield struct.unpack_from("=i", body, 4)[0], values

    def token_buckets(self) -> dict[int, QueueState]:
        """Return every token bucket of the namespace, by its device's ifindex."""
        buckets = {}
        for ifindex, values in self.queues("tbf"):
            options, statistics = attributes(values[2]), attributes(values[7])  # TCA_OPTIONS, TCA_STATS2
            rate = struct.unpack_from("=I", options[1], 8)[0]
            if 4 in options:
                rate = struct.unpack("=Q", options[4])[0]
            limit = struct.unpack_from("=I", options[1], 24)[0]
            sent = struct.unpack_from("=Q", statistics[1])[0]
            _, backlog, drops = struct.unpack_from("=III", statistics[3])
            buckets[ifindex] = QueueState(ifindex, rate, limit, sent, drops, backlog)
        return buckets


def _xdp_of(nested: bytes) -> AttachedProgram | None:
    """Decode IFLA_XDP: the program's id, or of several programs the first by mode."""
    values = attributes(nested)
    for kind in (4, 5, 6, 7):  # IFLA_XDP_PROG_ID, and of the driver, generic, the device's own
        if kind in values:
            return AttachedProgram(int.from_bytes(values[kind][:4], "little"), 6 in values)
    return None


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """Convert errors of sending a request, or of receiving its answer, to NetlinkError."""
    try:
        yield
    except TimeoutError as error:
        late = f"no answer of the kernel within {_ANSWER_S} s"
        raise NetlinkError(what, error.errno or errno.ETIMEDOUT, late) from error
    except OSError as error:
        raise NetlinkError(what, error.errno or 0, error.strerror or str(error)) from error


def _messages(data: bytes, what: str) -> Iterator[tuple[int, int, int, bytes]]:
    offset = 0
    while offset < len(data):
        length = struct.unpack_from("=I", data, offset)[0] if offset + 16 <= len(data) else 0
        if not 16 <= length <= len(data) - offset:
            raise NetlinkError(what, errno.EBADMSG, f"the answer is cut off after {len(data)} bytes")
        _, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data, offset)
        yield kind, flags, sequence, data[offset + 16 : offset + length]
        offset += (length + 3) & ~3


def _reason(flags: int, body: bytes) -> str:
    if not flags & 0x200:  # NLM_F_ACK_TLVS
        return ""
    return attributes(body[20:]).get(1, b"").rstrip(b"\0").decode()


def is_missing_feature(error: NetlinkError) -> bool:
    """Return whether a refusal means that the kernel lacks a feature, rather than that the request
    was wrong.
    """
    return error.code in (errno.ENOENT, errno.EOPNOTSUPP)
