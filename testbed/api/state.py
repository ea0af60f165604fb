"""Request a testbed's status from its daemon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.client import rpc
from testbed.client.main_facts import MainState
from testbed.client.runtime import Runtime
from testbed.errors import HostError, OwnerError, RequestError, TestbedError
from testbed.messages.coding import decode
from testbed.messages.status import NOT_ANSWERING, LivingStatus, SilentStatus, Status, UnwrittenStatus


def status(runtime: Runtime, call: Callable[..., Any] = rpc.call) -> LivingStatus:
    """Return the daemon's status; if the daemon does not answer, the facts that the main process wrote.
    Raises HostError for another user's testbed, TestbedError for an answer that this version cannot read.
    `call` replaces rpc.call.
    """
    written = runtime.read_main()
    try:
        answer = call(runtime.socket, "status", timeout_s=10.0)
    except (OwnerError, RequestError) as error:
        raise HostError(str(error)) from error
    except TestbedError as error:
        return _silent(runtime, written, str(error))
    return decode(Status, answer, f"testbed {runtime.name}: status")


def _silent(runtime: Runtime, written: MainState | None, why: str) -> SilentStatus | UnwrittenStatus:
    if not written:
        return UnwrittenStatus(
            name=runtime.name, pid=None, units=(), hosts=(), circuits=(), jobs=(), state="starting", error=why
        )
    return SilentStatus(
        name=written.name,
        pid=written.pid,
        user=written.user,
        configuration=written.configuration,
        state=NOT_ANSWERING if written.state == "ready" else written.state,
        units=(),
        hosts=(),
        circuits=(),
        jobs=(),
        error=why,
    )
