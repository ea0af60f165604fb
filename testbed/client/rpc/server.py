"""The server of requests on a unix socket, with a bounded number of connections at a time."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.client.rpc.connection import Connection, Emit, Handler, Phase
from testbed.client.rpc.peer import Peer
from testbed.errors import OwnerError, RequestError

MAX_CONNECTIONS = 128
MOST_LASTING = 96  # of the connections; the rest are for requests answered at once, such as to cancel
_LAST_WORDS_S = 1.0  # how long the server waits at its end for replies that are under way
_PATIENCE_S = 1.0  # how long a full server waits for a client to send its request or read its reply
_PAUSE_S = 0.1


@contextmanager
def serve(
    path: Path, handler: Handler, uid: int | None = None, lasting: Collection[str] = ()
) -> Iterator[None]:
    """Serve until the block ends, each request in a thread of its own. Only root and `uid` may connect: the
    socket file's mode and the kernel's credentials of the peer enforce it. `lasting` names the operations
    that last as long as their clients like: at most MOST_LASTING of them run at once.
    """
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        if uid is not None and uid != os.geteuid():
            os.chown(path, uid, -1)
        listener.listen(MAX_CONNECTIONS)
        listener.setblocking(False)
        server = _Server(listener, handler, frozenset((0, os.geteuid() if uid is None else uid)), lasting)
        reader, writer = os.pipe()
        acceptor = threading.Thread(
            target=server.accept, args=(reader,), name=f"serve-{path.stem}", daemon=True
        )
        acceptor.start()
        try:
            yield
        finally:
            os.write(writer, b"x")
            acceptor.join()
            os.close(reader)
            os.close(writer)
            path.unlink(missing_ok=True)
            server.end()


class _Server:
    def __init__(
        self, listener: socket.socket, handler: Handler, users: frozenset[int], lasting: Collection[str]
    ) -> None:
        self._listener, self._handler, self._users = listener, handler, users
        self._operations = frozenset(lasting)
        self._connections: set[Connection] = set()
        self._lasting = 0  # lasting requests under way
        self._changed = threading.Condition()  # guards the two above

    def accept(self, stop: int) -> None:
        """Accept connections until `stop` is readable."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(stop, select.POLLIN)
        while stop not in (ready := dict(poll.poll())):
            if ready:
                try:
                    connection, _ = self._listener.accept()
                except BlockingIOError:
                    continue
                except OSError:  # no descriptor is left, or the client has gone: go on serving the others
                    time.sleep(_PAUSE_S)
                    continue
                self._accept_one(connection)

    def _accept_one(self, connection: socket.socket) -> None:
        try:
            peer = Peer.of(connection)
            taken = Connection(connection, peer, self._answer, self._remove)
        except OSError:
            connection.close()
            return
        with self._changed:
            if peer.uid not in self._users:
                taken.refuse("only root and the user who started the testbed may ask", OwnerError.exit_code)
            elif len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
                taken.refuse(f"{MAX_CONNECTIONS} requests are worked on already: wait until one has ended")
            self._connections.add(taken)
        taken.start()

    def _answer(self, request: dict[str, Any], peer: Peer, emit: Emit, disconnected: threading.Event) -> Any:
        if request["op"] not in self._operations:
            return self._handler(request, peer, emit, disconnected)
        with self._changed:
            if self._lasting >= MOST_LASTING:
                operations = ", ".join(sorted(self._operations))
                raise RequestError(
                    f"{MOST_LASTING} requests that last ({operations}) are worked on already: wait until "
                    f"one has ended"
                )
            self._lasting += 1
        try:
            return self._handler(request, peer, emit, disconnected)
        finally:
            with self._changed:
                self._lasting -= 1

    def _make_room(self) -> bool:
        """Give up the connection that has waited longest on its client, to send or to read; return whether
        there was one.
        """
        waiting = [
            each
            for each in self._connections
            if each.state in (Phase.ASKING, Phase.ANSWERED) and time.monotonic() - each.since > _PATIENCE_S
        ]
        if not waiting:
            return False
        longest = min(waiting, key=lambda each: each.since)
        longest.give_up()
        return True

    def _remove(self, connection: Connection) -> None:
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def end(self) -> None:
        """Close all connections, after a moment in which replies under way can still be sent."""
        with self._changed:
            self._changed.wait_for(self._is_idle, _LAST_WORDS_S)
            remaining = list(self._connections)
        for connection in remaining:
            connection.give_up()

    def _is_idle(self) -> bool:
        return not any(each.state in (Phase.WORKING, Phase.ANSWERED) for each in self._connections)
