"""The messages while a testbed comes up and ends: from the daemon to the main process, and from that to the
command that waits. One line of JSON each. Imports no library: the command and the main process read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TypeAlias

from testbed.encoding import from_json


@dataclass(frozen=True, slots=True)
class UpPhase:
    """The progress of a phase: `done` of `total` parts. `total` 0: it has no parts to count."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class UpNote:
    """A line for the user."""

    note: str


@dataclass(frozen=True, slots=True)
class UpFailure:
    """The error that ended bringing up, in one line."""

    error: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class EndedInOrder:
    """The daemon has ended normally."""

    ended: bool


@dataclass(frozen=True, slots=True)
class NetworkSummary:
    """The size of the network of a testbed that is up, and its circuits by optical ports."""

    units: int
    hosts: int
    circuits: tuple[tuple[str, str], ...]
    datapath: str


@dataclass(frozen=True, slots=True)
class DaemonReady:
    """The daemon serves requests."""

    ready: NetworkSummary


@dataclass(frozen=True, slots=True)
class UpReady:
    """The testbed is up. `detached`: the command that started it returns."""

    ready: NetworkSummary
    name: str
    pid: int
    user: str
    configuration: str
    detached: bool


UpMessage: TypeAlias = UpPhase | UpNote | UpFailure | EndedInOrder | DaemonReady | UpReady
_KINDS: Mapping[tuple[str, ...], type[UpMessage]] = {
    tuple(each.name for each in fields(kind)): kind
    for kind in (UpPhase, UpNote, UpFailure, EndedInOrder, DaemonReady, UpReady)
}


def as_line(message: UpMessage) -> bytes:
    """Encode a message as a line."""
    return json.dumps(asdict(message)).encode() + b"\n"


def of_line(line: str | bytes) -> UpMessage:
    """Decode a line; both ends run the same version."""
    data = json.loads(line)
    return from_json(_KINDS[tuple(data)], data)
