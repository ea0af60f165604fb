"""The actions of the page, for a user with its token: the same requests that the commands send, and no
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.api.circuits import ANSWER_TIMEOUT_S, demands_of
from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.messages.coding import decode
from testbed.messages.controller import CircuitsMade
from testbed.messages.status import Status
from testbed.webpage.view import change_text


@dataclass(frozen=True, slots=True)
class PageActions:
    """Each action returns its outcome in a line. TestbedError says why nothing was done."""

    runtime: Runtime
    uid: int  # the user to act as; the daemon accepts it only from root
    call: Callable[..., Any] = rpc.call

    def request_circuits(self, text: str, force: bool) -> str:
        """Connect units, as `testbed circuits request`: "u1-u3 u2-u4"."""
        words = text.replace(",", " ").split()
        answer = self._ask(
            "circuits",
            action="request",
            force=force,
            demands=demands_of("request", words),
            timeout_s=ANSWER_TIMEOUT_S,
        )
        made = decode(CircuitsMade, answer, "circuits")
        lost = "".join(f"; job {loss.job} lost circuits" for loss in made.lost)
        what = change_text(made.event) if made.event else "nothing had to change"
        return what + lost

    def end_job(self, text: str) -> str:
        """End a queued or running job."""
        if not text.strip().isdecimal():
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
