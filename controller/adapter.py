"""The Ryu application API: from ryu itself in an environment that has it, else from os-ken, its maintained
continuation.

An environment has one of the two (scripts/install_ryu.py); `LIBRARY` says which, and no other module asks.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import version

if importlib.util.find_spec("ryu") is not None:
    from controller.on_ryu import (
        CONFIG_DISPATCHER,
        DEAD_DISPATCHER,
        MAIN_DISPATCHER,
        OSKenApp,
        listen_and_run,
        ofp_event,
        ofproto_v1_3,
        set_ev_cls,
    )

    LIBRARY = "ryu"
else:
    from controller.on_os_ken import (
        CONFIG_DISPATCHER,
        DEAD_DISPATCHER,
        MAIN_DISPATCHER,
        OSKenApp,
        listen_and_run,
        ofp_event,
        ofproto_v1_3,
        set_ev_cls,
    )

    LIBRARY = "os-ken"

__all__ = [
    "CONFIG_DISPATCHER",
    "DEAD_DISPATCHER",
    "LIBRARY",
    "MAIN_DISPATCHER",
    "OSKenApp",
    "library",
    "listen_and_run",
    "ofp_event",
    "ofproto_v1_3",
    "set_ev_cls",
]


def library() -> str:
    """The library that runs, and its version, `os-ken 4.2.2`."""
    return f"{LIBRARY} {version(LIBRARY)}"
