"""Send and receive the flows of one host: `python -I -S traffic_agent.py ADDRESS`, as the asking user, in the
host's network namespace. Standard library only, since one is started in every host.

It prints {"ports": [TCP, UDP]}, and reads two lines: its flows, once it knows the others' ports, and the
start by CLOCK_MONOTONIC, which all hosts share. It prints "idle" when its own flows have ended. A line "end"
makes it print its counts and exit; the end of its input, or of its time, makes it exit without them.

A TCP flow is a connection: a header with the flow's number and bytes, the bytes, and one byte back once the
receiver has all of them. Each datagram has the flow's number, its own, and how many there are.
"""

import contextlib
import errno
import heapq
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from typing import Any

HEADER = struct.Struct("!IQ")  # the flow's number, its bytes
DATAGRAM = struct.Struct("!III")  # the flow's number, the datagram's, how many the flow has
_CHUNK = bytes(1 << 17)
_CHUNKS_A_TURN = 4
_BURST = 64  # datagrams of a flow in one turn
_BACKLOG = 4096
PORTS = range(5009, 5041)  # of which an agent takes the first free one, by which a job's result names it
_BUFFER_BYTES = 1 << 22
_AGAIN_NS = 500_000  # after a full buffer
_LONGEST_WAIT_S = 0.2


class SendingFlow:
    """A TCP flow from this host. `ended_ns` is when the receiver had acknowledged all bytes."""

    def __init__(self, number: int, due_ns: int, address: tuple[str, int], size: int) -> None:
        self.number, self.due_ns, self.address, self.size = number, due_ns, address, size
        self.head, self.left = HEADER.pack(number, size), size
        self.started_ns: int | None = None
        self.ended_ns: int | None = None
        self.error: str | None = None
        self.tos = 0


class Streaming:
    """A UDP flow from this host: `packets` datagrams, one every `gap_ns`."""

    def __init__(
        self, number: int, due_ns: int, address: tuple[str, int], packets: int, last_bytes: int, gap_ns: float
    ) -> None:
        self.number, self.due_ns, self.address, self.packets = number, due_ns, address, packets
        self.last_bytes, self.gap_ns = last_bytes, gap_ns
        self.started_ns: int | None = None
        self.sent = self.tos = 0


class Receiving:
    """A TCP flow to this host, until its connection ends."""

    def __init__(self) -> None:
        self.head, self.size, self.received = b"", 0, 0
        self.number: int | None = None


class Collecting:
    """A UDP flow to this host: which of its datagrams came."""

    def __init__(self, packets: int) -> None:
        self.seen, self.packets = bytearray((packets + 7) // 8), packets
        self.distinct = self.again = self.in_time_bytes = self.bytes = 0
        self.ended_ns: int | None = None


class TrafficAgent:
    """The flows of this host, and its connections."""

    def __init__(self, address: str) -> None:
        self.poll = select.epoll()
        self.listener = listener(address)
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.datagrams.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        self.datagrams.bind((address, self.listener.getsockname()[1]))
        for each in (self.listener, self.datagrams):
            each.setblocking(False)
            self.poll.register(each, select.EPOLLIN)
        self.poll.register(0, select.EPOLLIN)
        self.connections: dict[int, tuple[socket.socket, SendingFlow | Receiving]] = {}  # by descriptor
        self.buffer = bytearray(1 << 18)
        self.due: list[tuple[int, int, SendingFlow | Streaming]] = []  # by time: starts, and datagrams
        self.flows: list[SendingFlow | Streaming] = []
        self.received: dict[int, list[int]] = {}  # of each TCP flow: bytes in time, all bytes
        self.collected: dict[int, Collecting] = {}
        self.open = self.end_ns = self.close_ns = self.payload = 0
        self.told_idle = False

    def ports(self) -> list[int]:
        return [self.listener.getsockname()[1], self.datagrams.getsockname()[1]]

    def plan(self, plan: dict[str, Any], start_ns: int) -> None:
        self.end_ns = start_ns + plan["seconds_ns"]
        self.close_ns = start_ns + plan["limit_ns"]
        self.payload = plan["payload_bytes"]
        for number, after_ns, address, port, size, rate_bps, dscp in plan["flows"]:
            due_ns = start_ns + after_ns
            flow: SendingFlow | Streaming
            if rate_bps is None:
                flow = SendingFlow(number, due_ns, (address, port), size)
            else:
                packets = -(-size // self.payload)
                last = max(DATAGRAM.size, size - (packets - 1) * self.payload)
                gap_ns = self.payload * 8e9 / rate_bps
                flow = Streaming(number, due_ns, (address, port), packets, last, gap_ns)
            flow.tos = dscp << 2
            self.flows.append(flow)
            heapq.heappush(self.due, (due_ns, number, flow))
        self.open = len(self.flows)

    def run(self) -> bool:
        """Carry the flows out; return whether the counts are wanted."""
        poll = self.poll.fileno()
        while (now_ns := time.monotonic_ns()) < self.close_ns:
            while self.due and self.due[0][0] <= now_ns:
                self.begin(heapq.heappop(self.due)[2], now_ns)
            if not self.open and not self.told_idle:
                self.told_idle = True
                print("idle", flush=True)
            wait_s = (self.due[0][0] - time.monotonic_ns()) / 1e9 if self.due else _LONGEST_WAIT_S
            # epoll's own limit of time is whole milliseconds
            select.select([poll], (), (), min(max(0.0, wait_s), _LONGEST_WAIT_S))
            for descriptor, event in self.poll.poll(0):
                if descriptor == 0:
                    return sys.stdin.readline() == "end\n"
                if descriptor == self.listener.fileno():
                    self.accept()
                elif descriptor == self.datagrams.fileno():
                    self.collect()
                elif descriptor in self.connections:
                    connection, flow = self.connections[descriptor]
                    if isinstance(flow, SendingFlow):
                        self.advance(connection, flow, event)
                    else:
                        self.receive(connection, flow)
        return False

    # ---- what this host sends ----

    def begin(self, flow: SendingFlow | Streaming, now_ns: int) -> None:
        """Start a flow, or send the datagrams of one that are due."""
        if isinstance(flow, Streaming):
            self.stream(flow, now_ns)
            return
        flow.started_ns = now_ns
        try:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, flow.tos)
            # no TIME_WAIT, which would use up the ports of a host with many flows
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            code = connection.connect_ex(flow.address)
        except OSError as error:
            self.over(None, flow, error.strerror)
            return
        if code not in (0, errno.EINPROGRESS):
            self.over(connection, flow, errno.errorcode.get(code, str(code)))
            return
        self.connections[connection.fileno()] = connection, flow
        self.poll.register(connection, select.EPOLLOUT)

    def advance(self, connection: socket.socket, flow: SendingFlow, event: int) -> None:
        """Send more of a flow, or take its acknowledgement."""
        try:
            if event & select.EPOLLOUT and not event & select.EPOLLERR:
                self.send(connection, flow)
            elif connection.recv(1):
                flow.ended_ns = time.monotonic_ns()
                self.over(connection, flow, None)
            else:
                self.over(connection, flow, "the receiver has gone")
        except BlockingIOError:
            pass
        except OSError as error:
            self.over(connection, flow, error.strerror)

    def send(self, connection: socket.socket, flow: SendingFlow) -> None:
        for _ in range(_CHUNKS_A_TURN):
            data: bytes | memoryview
            if flow.head:
                data = flow.head + _CHUNK[: min(flow.left, len(_CHUNK))]
            else:
                data = memoryview(_CHUNK)[: flow.left]
            sent = connection.send(data)
            if flow.head:
                head, flow.head = len(flow.head), flow.head[sent:]
                flow.left -= max(0, sent - head)
            else:
                flow.left -= sent
            if not flow.left and not flow.head:
                self.poll.modify(connection, select.EPOLLIN)
                return

    def over(self, connection: socket.socket | None, flow: SendingFlow, error: str | None) -> None:
        flow.error, self.open = error, self.open - 1
        if connection is not None:
            self.drop(connection)

    def drop(self, connection: socket.socket) -> None:
        if self.connections.pop(connection.fileno(), None):
            self.poll.unregister(connection)
        connection.close()

    def stream(self, flow: Streaming, now_ns: int) -> None:
        """Send the datagrams that are due."""
        first_ns = flow.due_ns
        if flow.started_ns is None:
            flow.started_ns = now_ns
        # at least the one that is due, which rounding may put off
        due = max(flow.sent, int((now_ns - first_ns) / flow.gap_ns)) + 1
        until = min(flow.packets, due, flow.sent + _BURST)
        again_ns = 0
        try:
            while flow.sent < until:
                size = flow.last_bytes if flow.sent == flow.packets - 1 else self.payload
                head = DATAGRAM.pack(flow.number, flow.sent, flow.packets)
                marked = [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", flow.tos))] if flow.tos else []
                self.datagrams.sendmsg([head, _CHUNK[: size - len(head)]], marked, 0, flow.address)
                flow.sent += 1
        except OSError:  # a full buffer; or a way that is not there now, which loses the rest
            again_ns = _AGAIN_NS
        if flow.sent < flow.packets:
            next_ns = first_ns + int(flow.sent * flow.gap_ns)
            heapq.heappush(self.due, (max(next_ns, now_ns + again_ns), flow.number, flow))
        else:
            self.open -= 1

    # ---- what it receives ----

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            for _ in range(_BURST):
                connection, _ = self.listener.accept()
                connection.setblocking(False)
                self.connections[connection.fileno()] = connection, Receiving()
                self.poll.register(connection, select.EPOLLIN)

    def receive(self, connection: socket.socket, flow: Receiving) -> None:
        try:
            for _ in range(_CHUNKS_A_TURN):
                if flow.number is None:
                    data = connection.recv(HEADER.size - len(flow.head))
                    flow.head += data
                    if len(flow.head) == HEADER.size:
                        flow.number, flow.size = HEADER.unpack(flow.head)
                        self.received[flow.number] = [0, 0]
                    if data:
                        continue
                count = 0 if flow.number is None else connection.recv_into(self.buffer)
                if flow.number is None or not count:
                    self.drop(connection)
                    return
                flow.received += count
                counts = self.received[flow.number]
                counts[1] = flow.received
                if time.monotonic_ns() <= self.end_ns:
                    counts[0] = flow.received
                if flow.received == flow.size:
                    connection.send(b"\1")
        except BlockingIOError:
            pass
        except OSError:
            self.drop(connection)

    def collect(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_BURST * 4):
                size = self.datagrams.recv_into(self.buffer)
                if size < DATAGRAM.size:
                    continue
                number, datagram, packets = DATAGRAM.unpack_from(self.buffer)
                if number not in self.collected:
                    self.collected[number] = Collecting(packets)
                flow = self.collected[number]
                if datagram >= flow.packets:
                    continue
                at, bit = datagram >> 3, 1 << (datagram & 7)
                if flow.seen[at] & bit:
                    flow.again += 1
                    continue
                flow.seen[at] |= bit
                flow.distinct += 1
                flow.bytes += size
                now_ns = time.monotonic_ns()
                if now_ns <= self.end_ns:
                    flow.in_time_bytes = flow.bytes
                if flow.distinct == flow.packets:
                    flow.ended_ns = now_ns

    def counts(self) -> dict[str, Any]:
        own = [flow for flow in self.flows if isinstance(flow, SendingFlow)]
        streams = [flow for flow in self.flows if isinstance(flow, Streaming)]
        return {
            "flows": [[each.number, each.started_ns, each.ended_ns, each.error] for each in own],
            "streams": [[each.number, each.started_ns, each.sent] for each in streams],
            "received": [[number, *counts] for number, counts in self.received.items()],
            "collected": [
                [number, each.distinct, each.again, each.ended_ns, each.in_time_bytes, each.bytes]
                for number, each in self.collected.items()
            ],
            "overrun": overrun(self.datagrams),
            "cpu_s": time.process_time(),
        }


def listener(address: str) -> socket.socket:
    """Listen at the first free port."""
    for port in PORTS:
        with contextlib.suppress(OSError):
            return socket.create_server((address, port), backlog=_BACKLOG)
    return socket.create_server((address, 0), backlog=_BACKLOG)


def overrun(datagrams: socket.socket) -> int:
    """Return how many datagrams the kernel dropped because they were not read in time."""
    inode = str(os.fstat(datagrams.fileno()).st_ino)
    with open("/proc/net/udp", encoding="ascii") as table:
        rows = [line.split() for line in table]
    return sum(int(row[-1]) for row in rows if row[9:10] == [inode])


def main(address: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    agent = TrafficAgent(address)
    print(json.dumps({"ports": agent.ports()}), flush=True)
    plan, start = sys.stdin.readline(), sys.stdin.readline()
    if not start:
        return 1
    agent.plan(json.loads(plan), json.loads(start)["start_ns"])
    if not agent.run():
        return 1
    print(json.dumps(agent.counts()), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)
