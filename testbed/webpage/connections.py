"""Find the owner of a connection over loopback in the kernel. Owns the request and the layout of its answer;
imports only the standard library and the typed errors.
"""

from __future__ import annotations

import os
import socket
import struct

from testbed.errors import HostError

LOOPBACK = "127.0.0.1"
NOT_KNOWN = -1

# <linux/sock_diag.h>, <linux/inet_diag.h>
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _REQUEST, _ERROR = 20, 1, 2
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_ENDS = struct.Struct("!HH4s12x4s12x")  # ports and addresses of the two ends
_ANY_SOCKET = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # of any device, with any cookie
_STATE_BYTES = 4
_OWNER = struct.Struct("=12xII")  # behind a timer and two queues: user, inode
_ALL_STATES = 0xFFFFFFFF
_RECEIVE_BYTES = 1 << 12
_ANSWER_S = 1.0


def uid_of(peer_port: int, port: int) -> int:
    """Return the user of the end at `peer_port` of a connection over loopback whose other end is at `port`;
    NOT_KNOWN if no process has that end open.

    The kernel reports a closed end (FIN-WAIT, TIME-WAIT) as user 0's; without an inode, unlike an end of
    root's. The request is for one connection and takes 30 us; the table /proc/net/tcp takes 50 ms while tens
    of thousands of connections have just ended. OSError if the kernel does not answer.
    """
    here = socket.inet_aton(LOOPBACK)
    ends = _ENDS.pack(peer_port, port, here, here)
    body = _ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + ends + _ANY_SOCKET
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_S)
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
        answer = kernel.recv(_RECEIVE_BYTES)
    _, kind, *_ = _HEADER.unpack_from(answer)
    at = _HEADER.size + _STATE_BYTES
    if (
        kind == _ERROR or answer[at : at + _ENDS.size] != ends
    ):  # no such connection: the answer is an error, or a server listening at that port
        return NOT_KNOWN
    uid, inode = _OWNER.unpack_from(answer, at + _ENDS.size + len(_ANY_SOCKET))
    return int(uid) if inode else NOT_KNOWN


def require_owners() -> None:
    """Raise HostError if the kernel does not report connections' owners."""
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        try:
            uid = uid_of(client.getsockname()[1], server.getsockname()[1])
        except OSError:
            uid = NOT_KNOWN
    if uid != os.geteuid():
        raise HostError(
            "this kernel does not say who has a connection open: sudo modprobe tcp_diag, CONFIG_INET_TCP_DIAG"
        )
