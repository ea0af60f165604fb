"""The conductor's interface to the optical model: in this process, or a user's own in a process of the
user's.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from testbed.encoding import from_json, to_json
from testbed.errors import RequestError, TestbedError
from testbed.optics.model import ANSWER_S, CircuitTurn, DarkTimes
from testbed.plugins.optical import model_of
from testbed.plugins.user_class import is_users
from testbed.topology.model import Topology

WITHIN_S = ANSWER_S
_MOST_BYTES = 8 << 20  # of an answer; ten thousand circuits take 1 MB
_PIECE_BYTES = 1 << 16


class Model(Protocol):
    """The optical model, which answers how long a change of circuits is dark."""

    def dark_times(self, turn: CircuitTurn) -> DarkTimes: ...


def model_for(topology: Topology, path: Path | None) -> Model:
    """Return the topology's model: a built-in one in this process, or a user's behind the socket at `path`.
    TestbedError without a socket, since a user's code never runs in this process.
    """
    if not is_users(topology.ocs.model):
        return model_of(topology)
    if path is None:
        raise TestbedError(f"ocs.model: {topology.ocs.model}: no process of its user's answers for it")
    return AskedModel(topology, path)


class AskedModel:
    """A user's own model, behind a socket of a process of the user's that the daemon manages
    (testbed/emulation/model_host.py). Not thread-safe.
    """

    def __init__(self, topology: Topology, path: Path, within_s: float = WITHIN_S) -> None:
        self._topology, self._path, self._within_s = topology, path, within_s
        self._name, self._ports = topology.ocs.model, topology.planes
        self._peer: socket.socket | None = None
        self._known = 0  # how much of the history the process knows

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Query the process. TestbedError, in one line, if it raises, gives an impossible answer, or does not
        answer in time; the next change queries it again.
        """
        deadline = time.monotonic() + self._within_s
        try:
            times = self._asked(turn, deadline)
            times.check(turn, self._ports)
        except TimeoutError as error:
            self._part()
            raise TestbedError(self._line(f"no dark times within {self._within_s:g} s")) from error
        except (OSError, EOFError) as error:
            self._part()
            raise TestbedError(self._line("its process ended without an answer")) from error
        except (TypeError, ValueError, RecursionError) as error:
            self._part()
            raise TestbedError(self._line(f"its answer is none: {error}")) from error
        except RequestError as error:
            raise TestbedError(self._line(str(error))) from error
        return times

    def _line(self, why: str) -> str:
        text = " ".join(why.split())
        return text if text.startswith("ocs") else f"ocs.model: {self._name}: {text}"

    def _asked(self, turn: CircuitTurn, deadline: float) -> DarkTimes:
        """Return the answer to a change. If the process has ended since the previous change, query it once
        more over a new connection.
        """
        if self._peer is not None:
            try:
                return self._answered(turn, deadline)
            except TimeoutError:
                raise
            except (OSError, EOFError):
                self._part()
        return self._answered(turn, deadline)

    def _answered(self, turn: CircuitTurn, deadline: float) -> DarkTimes:
        """Return the answer to a change. The process keeps the history of the earlier changes of this
        connection. Raises RequestError with its reason if it refuses, TypeError or ValueError if its answer
        is none.
        """
        if self._peer is None:
            self._peer, self._known = socket.socket(socket.AF_UNIX), 0
            self._peer.settimeout(max(deadline - time.monotonic(), 0.001))
            self._peer.connect(str(self._path))
            self._send("topology", self._topology.to_json(), deadline)
        self._send("turn", to_json(replace(turn, history=turn.history[self._known :])), deadline)
        answer = self._line_of(self._peer, deadline)
        self._known = len(turn.history)
        if not isinstance(answer, dict):
            raise TypeError(f"{type(answer).__name__}")
        if "dark" not in answer:
            raise RequestError(str(answer.get("refused", "it answered neither dark times nor a reason")))
        return from_json(DarkTimes, answer["dark"])

    def _send(self, key: str, value: object, deadline: float) -> None:
        """Send a message of one key."""
        assert self._peer is not None
        self._peer.settimeout(max(deadline - time.monotonic(), 0.001))
        self._peer.sendall(json.dumps({key: value}).encode() + b"\n")

    def _line_of(self, peer: socket.socket, deadline: float) -> Any:
        received: list[bytes] = []
        while not received or not received[-1].endswith(b"\n"):
            peer.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = peer.recv(_PIECE_BYTES)
            if not piece:
                raise EOFError
            received.append(piece)
            if len(received) * _PIECE_BYTES > _MOST_BYTES and sum(map(len, received)) > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        return json.loads(b"".join(received))

    def _part(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
