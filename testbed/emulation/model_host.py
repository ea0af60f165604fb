"""The process of a user's optical model: `python -m testbed.emulation.model_host FILE.py:CLASS`, run as that
user.

Its standard input is a socket: a connection, or one that accepts connections, one at a time. Each connection
carries lines of JSON: first the topology, which is answered only if `check` or `ready` asks for it, then
changes of circuits. Each change is answered with dark times, or with the reason why there are none. The
user's code prints to its standard output.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from testbed.encoding import from_json, to_json
from testbed.errors import RequestError
from testbed.ocs.circuits import circuit
from testbed.optics.model import ANSWER_S, CircuitTurn, DarkTimes, OpticalModel, PastTurn, Settings
from testbed.plugins.optical import find, in_words, made, settings_of
from testbed.plugins.user_class import in_a_line, line_of
from testbed.topology.model import Topology

LIMIT_S = 6.0  # for an answer; then the process ends, and is restarted at the next query
LOAD_LIMIT_S = 40.0  # for loading the model; before `up` the querier gives up sooner


@contextlib.contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """End this process if the block takes longer, whatever the user's code does."""
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model's settings in words, and its mean dark times by plane, in milliseconds."""

    settings: Settings
    means_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Question:
    """A line of a connection: a topology, with the folder of files that its settings name, to `check` or to
    be `ready` for; or a change of circuits, as JSON.
    """

    topology: str | None = None
    folder: str | None = None
    check: bool = False
    ready: bool = False
    turn: Mapping[str, object] | None = None

    @classmethod
    def read(cls, data: Any) -> _Question:
        """Convert a line's data; unknown keys are ignored."""
        return cls(**{each.name: data[each.name] for each in fields(cls) if each.name in data})

    @property
    def is_awaited(self) -> bool:
        """Return whether the other end waits for an answer."""
        return self.turn is not None or self.check or self.ready


class ModelHost:
    """A user's model for one topology, and the changes of circuits reported to it."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        folder: Path | None = None,
        kind: type[OpticalModel] | None = None,
    ) -> None:
        """Load and instantiate the model. RequestError, in one line, if that fails. File names in its
        settings are relative to `folder`. `kind` is its class; None: load it.
        """
        self._name, self.topology = name, topology
        kind = kind or find(topology.ocs.model)
        self._settings = settings_of(kind, topology, folder)  # the model's __init__ may not store them
        self._model: OpticalModel = made(kind, topology, self._settings)
        self._history: list[PastTurn] = []

    def forget(self) -> None:
        """Drop the changes; the next connection reports its own."""
        self._history.clear()

    def dark_times(self, turn: CircuitTurn) -> object:
        """Return the dark times of a change, as JSON; `turn.history` has the changes since the last one."""
        self._history += turn.history
        whole = replace(turn, history=tuple(self._history))
        try:
            times: Any = self._model.dark_times(whole)
            if not isinstance(times, DarkTimes):
                raise RequestError(f"its dark_times returned {type(times).__name__}; DarkTimes is accepted")
            dark = _encoded(times)
            from_json(DarkTimes, dark).check(turn, self.topology.planes)
        except RequestError as error:
            raise RequestError(f"ocs.model: {self._name}: {error}") from error
        except Exception as error:  # a user's code may raise anything
            raise self._raised("dark_times", error) from error
        return dark

    def checked(self) -> CheckedModel:
        """Return the model's settings in words, and its mean dark times by plane, as JSON. Tries the model on
        the change that sets up the first circuits.
        """
        spec = self.topology.ocs
        circuits = frozenset(circuit(*pair).ports for pair in spec.circuits)
        first = CircuitTurn(1, 0.0, frozenset(), circuits)
        began_s = time.monotonic()
        self.dark_times(first)
        took_s = time.monotonic() - began_s
        if took_s > ANSWER_S:
            raise RequestError(
                f"ocs.model: {self._name}: its dark_times took {took_s:.1f} s; {ANSWER_S:g} s are accepted"
            )
        self.forget()
        means_ms = {plane: self._mean_ms(plane) for plane in spec.planes or ("",)}
        return CheckedModel(in_words(self._settings), means_ms)

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


def _encoded(times: DarkTimes) -> object:
    try:
        return to_json(times)
    except (TypeError, ValueError, AttributeError) as error:
        raise RequestError(
            f"its dark times are no DarkTime by circuit, in whole nanoseconds: {in_a_line(error)}"
        ) from error


class Models:
    """The class, loaded once, and its model, which is made anew only for another topology: its state outlives
    a connection.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind: type[OpticalModel] | None = None
        self._host: ModelHost | None = None

    def load(self) -> type[OpticalModel]:
        """Load the class, unless it is loaded. RequestError, in one line, if it cannot be used."""
        self._kind = self._kind or find(self._name)
        return self._kind

    def host(self, topology: Topology, folder: Path | None) -> ModelHost:
        """Return the model of a topology, with no changes reported to it. RequestError as `load`."""
        if self._host is None or self._host.topology != topology:
            self._host = ModelHost(self._name, topology, folder, self.load())
        self._host.forget()
        return self._host


def serve(name: str, models: Models, peer: socket.socket) -> bool:
    """Answer the lines of a connection until the other end closes it; return False if there was no model."""
    host: ModelHost | None = None
    refused = ""
    with peer.makefile("rwb") as lines:
        for line in lines:
            asked = _Question.read(json.loads(line))
            answer: object = None
            try:
                if asked.topology is not None:
                    with _limited(LOAD_LIMIT_S):
                        folder = Path(asked.folder) if asked.folder else None
                        host = models.host(Topology.from_json(asked.topology), folder)
                        answer = _first_answer(asked, host)
                elif host is None:
                    answer = {"refused": refused}
                else:
                    with _limited(LIMIT_S):
                        answer = {"dark": host.dark_times(from_json(CircuitTurn, asked.turn))}
                encoded = json.dumps(answer)
            except Exception as error:  # a user's code may raise anything
                refused = _line(error, name)
                encoded = json.dumps({"refused": refused} if asked.is_awaited else None)
            if encoded != "null":
                lines.write(encoded.encode() + b"\n")
                lines.flush()
            if refused and host is None and asked.is_awaited:
                break
    return not refused or host is not None


def _first_answer(asked: _Question, host: ModelHost) -> object:
    """Return the answer to a topology: for `check` the model's report, for `ready` that it can be queried."""
    if asked.check:
        return asdict(host.checked())
    return {"ready": True} if asked.ready else None


def _line(error: Exception, name: str) -> str:
    if isinstance(error, RequestError):
        return str(error)
    traceback.print_exc()
    return f"ocs.model: {name}: it raised {in_a_line(error)}{line_of(error, name)}"


def main(argv: list[str]) -> int:
    """Serve one connection, or accept connections until one had no model. This then ends the process, so that
    the next one loads the class anew.
    """
    (name,) = argv
    with contextlib.suppress(OSError):  # loading FILE will report it
        os.chdir(Path(name.rpartition(":")[0]).parent)
    models = Models(name)
    with socket.socket(fileno=os.dup(0)) as given:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        if not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            serve(name, models, given)
            return 0
        with contextlib.suppress(Exception), _limited(LOAD_LIMIT_S):  # the first query reports it
            models.load()
        has_model = True
        while has_model:
            peer, _ = given.accept()
            with peer, contextlib.suppress(ConnectionError, ValueError):  # a line may be truncated
                has_model = serve(name, models, peer)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
