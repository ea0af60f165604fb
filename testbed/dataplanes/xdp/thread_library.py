"""Load the compiled threads that hold frames, and open the sockets through which they receive and send them
(testbed/dataplanes/xdp/native/).
"""

from __future__ import annotations

import ctypes
import socket

from testbed import native
from testbed.errors import HostError

_EVERY_PROTOCOL = 3  # ETH_P_ALL
_SOL_PACKET, _AUXDATA, _QDISC_BYPASS, _IGNORE_OUTGOING = 263, 8, 20, 23
_SEND_FORCED, _RECEIVE_FORCED = 32, 33  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
_RECEIVE_BYTES = 64 << 20


def loaded(library: native.Library) -> ctypes.CDLL:
    """Load a library that set-up compiled. HostError if it was not compiled, or from other sources."""
    if why := library.why_stale(library.path):
        raise HostError(why)
    try:
        return ctypes.CDLL(str(library.path), use_errno=True)
    except OSError as error:
        raise HostError(f"{library.path.name} does not load ({error}); {native.REMEDY}") from error


def frame_socket(device: str, send_bytes: int, has_queue: bool) -> socket.socket:
    """Open a socket that receives the frames that arrive at a device of the caller's network namespace, with
    their VLAN tags apart. It sends by any device: into that device's queue if `has_queue`, else past it.
    """
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        for option, value in ((_IGNORE_OUTGOING, 1), (_QDISC_BYPASS, int(not has_queue)), (_AUXDATA, 1)):
            opened.setsockopt(_SOL_PACKET, option, value)
        opened.setsockopt(socket.SOL_SOCKET, _RECEIVE_FORCED, _RECEIVE_BYTES)
        opened.setsockopt(socket.SOL_SOCKET, _SEND_FORCED, send_bytes)
        opened.bind((device, _EVERY_PROTOCOL))
    except BaseException:
        opened.close()
        raise
    return opened
