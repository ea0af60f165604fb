"""The Ryu application API from os-ken, which runs on native threads."""

from __future__ import annotations

from functools import partial

from os_ken import cfg
from os_ken.base.app_manager import AppManager, OSKenApp
from os_ken.controller import controller as connections
from os_ken.controller import handler, ofp_event
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser

from controller.ryu_api import BACKLOG, Bundling, RyuApi, begin, share_parts

hub.listen = partial(hub.listen, backlog=BACKLOG)


share_parts(ofproto_v1_3, ofproto_v1_3_parser)


class _Datapath(Bundling, connections.Datapath):  # type: ignore[misc]  # the library has no types
    """A connection that reports its end.

    On native threads os-ken 4.2.2 waits for a connection's sender before it reports the end, and the sender
    waits forever for something to send.
    """

    def _recv_loop(self) -> None:
        try:
            super()._recv_loop()
        finally:
            self.send(b"", close_socket=True)


_listen_and_run = partial(
    begin, manager=AppManager, connections=connections, settings=cfg, datapath=_Datapath
)
API = RyuApi("os-ken", OSKenApp, ofp_event, handler, ofproto_v1_3, _listen_and_run)
