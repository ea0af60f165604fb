"""The part of the Ryu application API that the controller uses, whichever library has it, and the start of an
application there. Imports neither library.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

BACKLOG = 1024  # connections not accepted yet; with the libraries' 50 the 51st waits a second, to try again
KEPT = 1 << 14  # flows that are kept as they are on the wire


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
    """A further method of a library's `Datapath`."""

    _encoded: ClassVar[dict[tuple[Hashable, ...], bytes]] = {}

    def send_all(self, messages: Iterable[bytes]) -> None:
        """Sends messages as one piece: the thread that sends wakes once."""
        connection: Any = self
        if piece := b"".join(messages):
            connection.send(piece)

    def encoded(self, make: Callable[..., Any], each: Iterable[tuple[Hashable, ...]]) -> list[bytes]:
        """Returns what `make` makes of each, which is the same for any switch, as it is sent: what was made
        for another switch before is not made again.
        """
        parts = []
        for key in each:
            encoded = self._encoded.get(key)
            if encoded is None:
                message = make(*key)
                message.set_xid(0)  # of no request: nobody waits for its answer
                message.serialize()
                if len(self._encoded) >= KEPT:
                    self._encoded.clear()
                encoded = self._encoded[key] = bytes(message.buf)
            parts.append(encoded)
        return parts


def share_parts(protocol: Any, parser: Any) -> None:
    """Have a library decode a flow's match once, and its instructions, for all flows of all switches that
    have the same. What it decoded is only to be read.
    """
    head, whole = struct.Struct(protocol.OFP_FLOW_STATS_0_PACK_STR), parser.OFPFlowStats
    match_size = struct.Struct("!H")
    matches: dict[bytes, Any] = {}
    orders: dict[bytes, Any] = {}  # instructions: a circuit's two flows have others' in another pair

    def decoded(buf: bytes, offset: int) -> Any:
        length, table, s, ns, priority, idle, hard, flags, cookie, packets, octets = head.unpack_from(
            buf, offset
        )
        begin = offset + head.size
        middle = begin + (match_size.unpack_from(buf, begin + 2)[0] + 7 & ~7)  # padded to 8
        keys = bytes(buf[begin:middle]), bytes(buf[middle : offset + length])
        match, instructions = matches.get(keys[0]), orders.get(keys[1])
        if match is None or instructions is None:
            for kept in (matches, orders):
                if len(kept) >= KEPT:
                    kept.clear()
            entry = whole.parser(buf, offset)
            match, instructions = entry.match, entry.instructions
            matches[keys[0]], orders[keys[1]] = match, instructions
        return whole(
            *(table, s, ns, priority, idle, hard, flags, cookie, packets, octets),
            *(match, instructions, length),
        )

    parser.OFPFlowStatsReply.cls_stats_body_cls = SimpleNamespace(parser=decoded)


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
