"""The Ryu application API from os-ken, whose parts are native threads."""

from __future__ import annotations

import contextlib
from typing import Any

from os_ken import cfg
from os_ken.base.app_manager import AppManager, OSKenApp
from os_ken.controller import controller as connections
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

__all__ = [
    "CONFIG_DISPATCHER",
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "OSKenApp",
    "listen_and_run",
    "ofp_event",
    "ofproto_v1_3",
    "set_ev_cls",
]


class _Datapath(connections.Datapath):  # type: ignore[misc]  # the library has no types
    """A connection whose end is reported.

    On native threads os-ken 4.2.2 waits for a connection's sender before it reports the end, and the sender
    waits for ever for something to send.
    """

    def _recv_loop(self) -> None:
        try:
            super()._recv_loop()
        finally:
            self.send(b"", close_socket=True)


def _serve_connection(connection: Any, address: Any) -> None:
    with contextlib.closing(_Datapath(connection, address)) as datapath:
        datapath.serve()


def listen_and_run(application: str, host: str, port: int) -> None:
    """Starts the application (a module name) with its OpenFlow listener, and returns."""
    connections.datapath_connection_factory = _serve_connection
    manager = AppManager.get_instance()
    manager.load_apps([application])
    contexts = manager.create_contexts()
    cfg.CONF(args=[f"--ofp-listen-host={host}", f"--ofp-tcp-listen-port={port}"], project="optinc")
    manager.instantiate_apps(**contexts)
