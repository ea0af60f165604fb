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

LIMIT_S = 6.0  # for an answer; the process ends then, and is started again when it is asked the next time
LOAD_LIMIT_S = 40.0  # until there is a model; before `up` whoever asks gives up sooner


@contextlib.contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """End this process if the block takes longer, whatever the user's code is at."""
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
    """A line that comes by a connection: a topology, with the folder of files that its settings name, to
    `check`, or to be `ready` for; or a change of circuits, as JSON has it.
    """

    topology: str | None = None
    folder: str | None = None
    check: bool = False
    ready: bool = False
    turn: Mapping[str, object] | None = None

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> _Question:
        """Return the question of a line; what is no field of it is passed over."""
        return cls(**{each.name: data[each.name] for each in fields(cls) if each.name in data})

    @property
    def is_awaited(self) -> bool:
        """Say whether whoever asks waits for an answer."""
        return self.turn is not None or self.check or self.ready


class ModelHost:
    """A user's model, for one topology, and the changes that it has been told of."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        folder: Path | None = None,
        kind: type[OpticalModel] | None = None,
    ) -> None:
        """Raise RequestError, in one line, where it cannot be made. Its settings name files in `folder`.
        `kind` is its class; None: it is loaded.
        """
        self._name, self.topology = name, topology
        kind = kind or find(topology.ocs.model)
        self._settings = settings_of(kind, topology, folder)  # its __init__ may forget them
        self._model: OpticalModel = made(kind, topology, self._settings)
        self._history: list[PastTurn] = []

    def forget(self) -> None:
        """Forget the changes, which whoever asks next will tell of."""
        self._history.clear()

    def dark_times(self, turn: CircuitTurn) -> object:
        """Return the dark times of a change, as JSON; its history is what was added since the last one."""
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
        """Return the model's settings in words, and its means by plane, as JSON. It is tried on the change
        that would light the first circuits.
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
    """The class, loaded once, and its model, which is made anew for another topology alone: what it remembers
    outlives a connection.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind: type[OpticalModel] | None = None
        self._host: ModelHost | None = None

    def load(self) -> type[OpticalModel]:
        """Load the class, if it is not loaded. RequestError, in one line, where it cannot be used."""
        self._kind = self._kind or find(self._name)
        return self._kind

    def host(self, topology: Topology, folder: Path | None) -> ModelHost:
        """Return the model of a topology, which has been told of no change. RequestError likewise."""
        if self._host is None or self._host.topology != topology:
            self._host = ModelHost(self._name, topology, folder, self.load())
        self._host.forget()
        return self._host


def serve(name: str, models: Models, peer: socket.socket) -> bool:
    """Answer what comes by a connection, until its other end closes; return False if there was no model."""
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
    """Return what is answered to a topology: with `check` what the model says, with `ready` that it can be
    asked.
    """
    if asked.check:
        return asdict(host.checked())
    return {"ready": True} if asked.ready else None


def _line(error: Exception, name: str) -> str:
    if isinstance(error, RequestError):
        return str(error)
    traceback.print_exc()
    return f"ocs.model: {name}: it raised {in_a_line(error)}{line_of(error, name)}"


def main(argv: list[str]) -> int:
    """Serve the connection, or all that come: until one had no model, which ends the process, so that the
    class is loaded anew for the next.
    """
    (name,) = argv
    with contextlib.suppress(OSError):  # which loading FILE will say
        os.chdir(Path(name.rpartition(":")[0]).parent)
    models = Models(name)
    with socket.socket(fileno=os.dup(0)) as given:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        if not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            serve(name, models, given)
            return 0
        with contextlib.suppress(Exception), _limited(LOAD_LIMIT_S):  # whoever asks is told of it
            models.load()
        has_model = True
        while has_model:
            peer, _ = given.accept()
            with peer, contextlib.suppress(ConnectionError, ValueError):  # a line may be cut off
                has_model = serve(name, models, peer)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
