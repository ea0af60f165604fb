"""The peer at the other end of a unix socket, as the kernel noted it at the time of the connection."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from dataclasses import dataclass

_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python 3.11 does not name it
_MOST_GROUPS = 65536  # NGROUPS_MAX
_GID_BYTES = 4
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Peer:
    """The user, group and other groups of the connecting process, at the time it connected. They are the
    process's own, whatever the user database says, also for a process in another PID namespace, whose pid
    this process cannot look up.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    def of(cls, connection: socket.socket) -> Peer:
        """Read the peer's credentials. Raises OSError if this is no connected unix socket."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("=iII"))
        _pid, uid, gid = struct.unpack("=iII", credentials)
        return cls(uid, gid, _groups(connection))


def _groups(connection: socket.socket) -> tuple[int, ...]:
    """Read the peer's other groups, by libc, because Python's own getsockopt reads at most 1,024 bytes.
    Kernels before 4.13 do not report them: then there are none.
    """
    groups, size = (ctypes.c_uint32 * _MOST_GROUPS)(), ctypes.c_uint32(_MOST_GROUPS * _GID_BYTES)
    if _libc.getsockopt(connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)):
        code = ctypes.get_errno()
        if code == errno.ENOPROTOOPT:
            return ()
        raise OSError(code, f"groups of the process that connected: {os.strerror(code)}")
    return tuple(groups[: size.value // _GID_BYTES])
