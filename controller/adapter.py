"""The Ryu application API: from ryu itself in an environment that has it, else from os-ken, its maintained
continuation.

An environment has one of the two (scripts/install_ryu.py); `LIBRARY` names it, and no other module checks.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import version

from controller.ryu_api import RyuApi

_MODULE = "controller.on_ryu" if importlib.util.find_spec("ryu") is not None else "controller.on_os_ken"
API: RyuApi = importlib.import_module(_MODULE).API
LIBRARY = API.library


def library() -> str:
    """Return the running library and its version, `os-ken 4.2.2`."""
    return f"{LIBRARY} {version(LIBRARY)}"
