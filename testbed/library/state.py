"""The state of a testbed, as it says it itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import HostError, OwnerError, RequestError, TestbedError

NOT_ANSWERING = "not answering"


def status(runtime: Runtime, call: Callable[..., Any] = rpc.call) -> dict[str, Any]:
    """Return what the daemon says; while it does not answer, what the main process wrote. Raises HostError
    for another user's. `call` asks in rpc.call's place.
    """
    written = runtime.read_main()
    try:
        return dict(call(runtime.socket, "status", timeout_s=10.0))
    except (OwnerError, RequestError) as error:
        raise HostError(str(error)) from error
    except TestbedError as error:
        state = NOT_ANSWERING if written.get("state") == "ready" else written.get("state", "starting")
        empty: dict[str, Any] = {"units": [], "hosts": [], "circuits": [], "jobs": []}
        return {
            "name": runtime.name,
            "pid": written.get("pid"),
            **written,
            **empty,
            "state": state,
            "error": str(error),
        }
