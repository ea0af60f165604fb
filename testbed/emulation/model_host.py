"""The process of a user's optical model: `python -m testbed.emulation.model_host FILE.py:CLASS`, as that
user.

Its standard input is a socket: a connection, or one at which connections come, one after the other. On each
come lines of JSON: the topology first, whose answer is asked for with `check` alone, and then changes of
circuits. Each change is answered by dark times, or by why there are none. What the user's code prints goes to
its standard output.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from testbed.discovery.optical import in_words, model_of
from testbed.discovery.user_class import in_a_line, line_of
from testbed.encoding import from_json, to_json
from testbed.errors import RequestError
from testbed.ocs.circuits import circuit
from testbed.optics.model import CircuitTurn, DarkTimes, OpticalModel, PastTurn
from testbed.topology.model import Topology

LIMIT_S = 6.0  # for an answer; the process ends then, and is started again when it is asked the next time


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """End this process if the block takes too long, whatever the user's code is at."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


class ModelHost:
    """A user's model, for one topology, and the changes that it has been told of."""

    def __init__(self, name: str, topology: Topology, folder: Path | None = None) -> None:
        """Raise RequestError, in one line, where it cannot be made. Its settings name files in `folder`."""
        self._name, self._topology = name, topology
        self._model: OpticalModel = model_of(topology, folder)
        self._history: list[PastTurn] = []

    def dark_times(self, turn: CircuitTurn) -> dict[str, Any]:
        """Return the dark times of a change, as JSON; its history is what was added since the last one."""
        self._history += turn.history
        whole = replace(turn, history=tuple(self._history))
        try:
            times: Any = self._model.dark_times(whole)
            if not isinstance(times, DarkTimes):
                raise RequestError(f"its dark_times returned {type(times).__name__}; DarkTimes is accepted")
            dark = _encoded(times)
            from_json(DarkTimes, dark).check(turn, self._topology.planes)
        except RequestError as error:
            raise RequestError(f"ocs.model: {self._name}: {error}") from error
        except Exception as error:  # a user's code may raise anything
            raise self._raised("dark_times", error) from error
        return dark

    def checked(self) -> dict[str, Any]:
        """Return the model's settings in words, and its means by plane, as JSON. It is tried on the change
        that would light the first circuits.
        """
        spec = self._topology.ocs
        circuits = frozenset(circuit(*pair).ports for pair in spec.circuits)
        first = CircuitTurn(1, 0.0, frozenset(), circuits)
        self.dark_times(first)
        self._history.clear()
        means_ms = {plane: self._mean_ms(plane) for plane in spec.planes or ("",)}
        return {"settings": asdict(in_words(self._model.settings)), "means_ms": means_ms}

    def _mean_ms(self, plane: str) -> float:
        try:
            mean_ms = float(self._model.mean_ms(plane))
        except Exception as error:  # a user's code may raise anything
            raise self._raised("mean_ms", error) from error
        if not (math.isfinite(mean_ms) and mean_ms >= 0):
            raise RequestError(
                f"ocs.model: {self._name}: its mean_ms returned {mean_ms}; milliseconds from 0 are accepted"
            )
        return mean_ms

    def _raised(self, method: str, error: Exception) -> RequestError:
        traceback.print_exc()
        where = line_of(error, self._name)
        return RequestError(f"ocs.model: {self._name}: its {method} raised {in_a_line(error)}{where}")


def _encoded(times: DarkTimes) -> dict[str, Any]:
    try:
        return dict(to_json(times))
    except (TypeError, ValueError, AttributeError) as error:
        raise RequestError(
            f"its dark times are no DarkTime by circuit, in whole nanoseconds: {in_a_line(error)}"
        ) from error


def serve(name: str, peer: socket.socket) -> None:
    """Answer what comes by a connection, until its other end closes."""
    host: ModelHost | None = None
    refused = ""
    with peer.makefile("rwb") as lines:
        for line in lines:
            asked = json.loads(line)
            answer: dict[str, Any] | None = None
            try:
                with _limited() if "check" not in asked else contextlib.nullcontext():
                    if "topology" in asked:
                        folder = Path(asked["folder"]) if asked.get("folder") else None
                        host = ModelHost(name, Topology.from_json(asked["topology"]), folder)
                        answer = host.checked() if asked.get("check") else None
                    elif host is None:
                        answer = {"refused": refused}
                    else:
                        answer = {"dark": host.dark_times(from_json(CircuitTurn, asked["turn"]))}
            except RequestError as error:
                refused = str(error)
                answer = {"refused": refused} if "turn" in asked or asked.get("check") else None
            if answer is not None:
                lines.write(json.dumps(answer).encode() + b"\n")
                lines.flush()


def main(argv: list[str]) -> int:
    """Serve the connection, or all that come."""
    (name,) = argv
    with socket.socket(fileno=os.dup(0)) as given:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        if not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            serve(name, given)
            return 0
        while True:
            peer, _ = given.accept()
            with peer, contextlib.suppress(ConnectionError):
                serve(name, peer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
