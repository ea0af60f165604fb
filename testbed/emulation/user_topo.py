"""Make a topology by FILE.py:CLASS: the class is called in a process of its user's, never as root, and its
answer must obey the rules of a YAML file.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.client.caller import Caller
from testbed.emulation.namespaces import apart, die_with_parent, fresh_keys
from testbed.emulation.spawner import Started
from testbed.errors import RequestError
from testbed.interpreters import isolated
from testbed.machine.question import ask
from testbed.topology.load import AtUp, parse
from testbed.topology.model import Topology

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class HostModule:
    """A module that answers in a process of its own: its name and arguments, and its answer's name in
    errors.
    """

    words: Sequence[str]
    wanted: str


@dataclass(frozen=True, slots=True)
class TopologyAnswer:
    """A topology, as in a YAML file, or in one line why there is none; unchecked."""

    configuration: Any = None
    refused: Any = None


def topology_of(name: str, caller: Caller, environ: Mapping[str, str], at_up: AtUp | None = None) -> Topology:
    """Return the topology that a user's class describes; `environ` is the process's environment.
    RequestError, in one line, if the class raises, describes none, or takes too long.
    """

    try:
        host = HostModule(("testbed.emulation.topo_host", name), "topology")
        answer = answer_of(host, {}, TopologyAnswer, caller, environ)
        if answer.refused is not None:
            raise RequestError(" ".join(str(answer.refused).split()))
        return parse(answer.configuration, name.rpartition(":")[2], at_up=at_up)
    except RequestError as error:
        raise RequestError(f"--config {name}: {error}") from error


def answer_of(
    host: HostModule, question: object, kind: type[T], caller: Caller, environ: Mapping[str, str]
) -> T:
    """Run a module as a user, without access to the host's network, and return its answer to a question.
    RequestError, in one line, if there is none in time.
    """

    def start(stdin: int) -> Started:
        with apart() if os.geteuid() == 0 else contextlib.nullcontext():
            return Started(
                isolated("-u", "-m", *host.words),
                env=environ,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_alone,
                **caller.of_a_child(),
            )

    return ask(start, question, kind, host.wanted, WITHIN_S)


def _alone() -> None:
    """Drop root's keys, and end with the parent command. Runs as the user, before the program."""
    fresh_keys()
    die_with_parent()
