"""The part of the Ryu application API that the controller uses, whichever library has it, and the start of an
application there. Imports neither library.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

BACKLOG = 1024  # connections not accepted yet; with the libraries' 50 the 51st waits a second, to try again


@dataclass(frozen=True, slots=True)
class RyuApi:
    """The parts of a library, by what they are: the API is the same, and neither library has types.

    `library` is its name for pip. `listen_and_run(application, host, port)` starts an application (a module
    name) with its OpenFlow listener, and returns.
    """

    library: str
    application: Any  # the class to derive from
    events: Any
    handler: Any
    protocol: Any  # OpenFlow 1.3
    listen_and_run: Callable[[str, str, int], None]


class Bundling:
    """What a library's `Datapath` gets besides."""

    def send_all(self, messages: Iterable[Any]) -> None:
        """Sends messages as one piece, for which the thread that sends wakes once."""
        connection: Any = self
        parts = []
        for message in messages:
            connection.set_xid(message)
            message.serialize()
            parts.append(bytes(message.buf))
        if parts:
            connection.send(b"".join(parts))


def begin(
    application: str, host: str, port: int, *, manager: Any, connections: Any, settings: Any, datapath: Any
) -> None:
    """Starts an application with a library's AppManager, its modules of connections and of settings, and the
    class that its connections are to be of; on the thread that the library is to run on.
    """

    def serve(connection: Any, address: Any) -> None:
        with contextlib.closing(datapath(connection, address)) as served:
            served.serve()

    connections.datapath_connection_factory = serve
    applications = manager.get_instance()
    applications.load_apps([application])
    contexts = applications.create_contexts()
    settings.CONF(args=[f"--ofp-listen-host={host}", f"--ofp-tcp-listen-port={port}"], project="optinc")
    applications.instantiate_apps(**contexts)
