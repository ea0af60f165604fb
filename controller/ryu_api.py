"""The part of the Ryu application API that the controller uses, from either library, and starting an
application. Imports neither library.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

BACKLOG = 1024  # pending connections; with the libraries' 50, the 51st retries after a second
KEPT = 1 << 14  # flows cached in their wire encoding


@dataclass(frozen=True, slots=True)
class RyuApi:
    """The parts of a library, by role; both have the same API, and neither has types. `library` is its name
    for pip. `listen_and_run(application, host, port)` starts an application (a module name) with its OpenFlow
    listener, and returns.
    """

    library: str
    application: Any  # the class to derive from
    events: Any
    handler: Any
    protocol: Any  # OpenFlow 1.3
    listen_and_run: Callable[[str, str, int], None]


class Bundling:
    """Additional methods for a library's `Datapath`."""

    _encoded: ClassVar[dict[tuple[Hashable, ...], bytes]] = {}

    def send_all(self, messages: Iterable[bytes]) -> None:
        """Send messages as one piece, so that the sending thread wakes once."""
        connection: Any = self
        if piece := b"".join(messages):
            connection.send(piece)

    def encoded(self, make: Callable[..., Any], each: Iterable[tuple[Hashable, ...]]) -> list[bytes]:
        """Encode the message that `make` makes of each key. Encodings are the same for all switches, and
        cached.
        """
        parts = []
        for key in each:
            encoded = self._encoded.get(key)
            if encoded is None:
                message = make(*key)
                message.set_xid(0)  # of no request: no answer is expected
                message.serialize()
                if len(self._encoded) >= KEPT:
                    self._encoded.clear()
                encoded = self._encoded[key] = bytes(message.buf)
            parts.append(encoded)
        return parts


def share_parts(protocol: Any, parser: Any) -> None:
    """Make a library decode equal matches, and equal instructions, only once for all flows of all switches.
    The decoded objects are shared, so they must not be changed.
    """
    head, whole = struct.Struct(protocol.OFP_FLOW_STATS_0_PACK_STR), parser.OFPFlowStats
    match_size = struct.Struct("!H")
    matches: dict[bytes, Any] = {}
    orders: dict[bytes, Any] = {}  # instructions: the flows of other circuits combine them with other matches

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
    """Start an application with a library's AppManager, its modules of connections and of settings, and the
    class for its connections. Call on the thread on which the library is to run.
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
