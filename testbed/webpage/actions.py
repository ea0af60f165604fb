"""The actions of the page, for a user with its token: the same requests that the commands send, and no
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.api.circuits import ANSWER_TIMEOUT_S
from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.messages.coding import decode
from testbed.messages.controller import CircuitsMade
from testbed.messages.status import Status
from testbed.webpage.view import change_text

_MOST_DIGITS = 12  # of a job's number


@dataclass(frozen=True, slots=True)
class PageActions:
    """Each action returns its outcome in a line. TestbedError says why nothing was done."""

    runtime: Runtime
    uid: int  # the user to act as; the daemon accepts it only from root
    call: Callable[..., Any] = rpc.call

    def light(self, a: str, b: str, force: bool) -> str:
        """Set up a circuit between two optical ports, in the place of those that either has, by
        `testbed circuits add`.
        """
        return self._set("add", [a, b], force)

    def clear(self, circuit: str, force: bool) -> str:
        """Clear a circuit, such as "u1o1-u2o1"."""
        return self._set("remove", circuit.split("-"), force)

    def _set(self, action: str, ports: list[str], force: bool) -> str:
        asked = {"action": action, "circuits": [ports], "force": force}
        answer = self._ask("circuits", timeout_s=ANSWER_TIMEOUT_S, **asked)
        made = decode(CircuitsMade, answer, "circuits")
        lost = "".join(f"; job {loss.job} lost circuits" for loss in made.lost)
        what = change_text(made.event) if made.event else "nothing had to change"
        return what + lost

    def end_job(self, text: str) -> str:
        """End a queued or running job."""
        if not text.isdecimal() or len(text) > _MOST_DIGITS:
            raise RequestError(f"job {text!r}: the number of a job is accepted")
        number = int(text)
        status = decode(Status, self._ask("status"), "status")
        if number in status.queued:
            self._ask("cancel", jobs=[number], reason="cancelled on the page", uid=self.uid)
        else:
            self._ask("stop", job=number, reason="ended on the page", uid=self.uid)
        return f"job {number} is asked to end"

    def _ask(self, operation: str, **arguments: Any) -> Any:
        self.runtime.require_alive()
        return self.call(self.runtime.socket, operation, **arguments)
