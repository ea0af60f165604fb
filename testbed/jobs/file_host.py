"""Open, read and write a user's files, and make folders, as that user with its groups: `python -I -S
file_host.py ACTION PATHS...`.

For each path it sends a message on the socket at standard input: b"+" and a descriptor (open, log), b"+" and
part of the content (read; then b"." at its end, or b"0" if there is no file), b"+" alone (write, of the
content received before; folder), or b"-" and a reason. The client may stop waiting, and kill this process.
Imports built-in modules only, because it is run for every job.

testbed/jobs/user_files.py is the other end.
"""

import _socket
import errno
import os
import sys

PIECE_BYTES = 1 << 16
_SCM_RIGHTS = 1
_REGULAR, _KIND = 0o100000, 0o170000  # stat.h
_NO_FILE = "it is no ordinary file"


def opened(path: str, flags: int) -> int:
    """Open an ordinary file without blocking: for a pipe, do not wait for its other end. Raises OSError."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            raise OSError(error.errno, _NO_FILE) from error
        raise
    if os.fstat(fd).st_mode & _KIND != _REGULAR:
        os.close(fd)
        raise OSError(errno.ENXIO, _NO_FILE)
    return fd


def replace(fd: int, content: bytes) -> None:
    """Replace an ordinary file's content. Raises OSError; if the disk has no room, the old content stays."""
    old_size = os.fstat(fd).st_size
    try:
        if len(content) > old_size:
            os.posix_fallocate(fd, old_size, len(content) - old_size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            os.ftruncate(fd, old_size)
            raise
    at = 0
    while at < len(content):
        at += os.pwrite(fd, content[at:], at)
    os.ftruncate(fd, len(content))


def answer(peer: _socket.socket, action: str, path: str) -> None:
    """Carry out the action on one path, and send its messages. Raises OSError if it fails."""
    if action == "folder":
        os.makedirs(path, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        peer.send(b"+")
        return
    if action == "read":
        fd = opened(path, os.O_RDONLY)
        while piece := os.read(fd, PIECE_BYTES):
            peer.send(b"+" + piece)
        peer.send(b".")
    elif action == "write":
        is_new = not os.path.lexists(path)
        fd = opened(path, os.O_WRONLY | os.O_CREAT)
        pieces = []
        while piece := peer.recv(PIECE_BYTES):
            pieces.append(piece)
        try:
            replace(fd, b"".join(pieces))
        except OSError:
            if is_new:
                os.unlink(path)
            raise
        peer.send(b"+")
    else:
        fd = opened(path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if action == "log" else 0))
        if action == "log":
            os.ftruncate(fd, 0)
        peer.sendmsg([b"+"], [(_socket.SOL_SOCKET, _SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))])
    os.close(fd)


def main(action: str, paths: list[str]) -> None:
    os.umask(0o022)
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 0)
    for path in paths:
        try:
            answer(peer, action, path)
        except OSError as error:
            if action == "read" and error.errno == errno.ENOENT:
                peer.send(b"0")
                continue
            while action == "write" and peer.recv(
                PIECE_BYTES
            ):  # drain it, or the client would see a closed socket instead of the reason
                pass
            peer.send(b"-" + (error.strerror or str(error)).encode(errors="replace"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
