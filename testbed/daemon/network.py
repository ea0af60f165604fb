"""The network of a running testbed: its machine, its places, and the controller process.

Owns the order in which these start and end. Restarts the controller and BMv2 switches that end: without the
controller circuits keep forwarding; the sums in a switch are lost.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.aggregation.admission import Places, Ways
from testbed.aggregation.forest import Forest
from testbed.aggregation.result_ports import ways
from testbed.client import environment, rpc
from testbed.client.caller import Caller
from testbed.daemon.model_process import ModelProcess
from testbed.daemon.programs import DevicePrograms
from testbed.emulation.namespaces import die_with_parent
from testbed.errors import TestbedError
from testbed.interpreters import isolated, with_checkout
from testbed.jobs.environment import worker_environment
from testbed.local.local import Local
from testbed.machine.interface import Machine, UnitSwitches
from testbed.plugins.registry import programs, with_programs
from testbed.plugins.user_class import is_users
from testbed.topology.addresses import Dpid
from testbed.topology.model import Topology

CONTROLLER_PORT = 6653
CONTROLLER_RESTARTS = 5
_READY_TIMEOUT_S = 60.0
_TOLD_AT_ONCE = 16  # switches in parallel: each mostly waits for its data plane
_END_TIMEOUT_S = 5.0

Progress = Callable[[str, int, int], None]


def _silent(_phase: str, _done: int, _total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Restart:
    """A switch that ended (`ended` says how) and was restarted for the `count`-th time; it held sums of
    `jobs` (job: generation).
    """

    dpid: Dpid
    ended: str
    count: int
    jobs: Mapping[int, int]

    def __str__(self) -> str:
        return self.ended


def start_again(switches: UnitSwitches, places: Places) -> list[Restart]:
    """Restart the switches that ended, and return the restarts that succeeded. A switch that fails to restart
    is tried again at the next call. TestbedError if one is not to be restarted.
    """
    restarts = []
    for ended in switches.watch():
        try:
            jobs = places.restart(ended.dpid, partial(switches.restart, ended.dpid))
        except TestbedError:
            if not switches.has_ended(ended.dpid):
                raise  # a later call would not try again
        else:
            restarts.append(Restart(ended.dpid, ended.ended, ended.count, jobs))
    return restarts


class Network:
    """The network as a context manager: entering starts everything and waits until every switch was read
    back; leaving ends it.

    `folder`, named as the testbed, gets topology.json, history.jsonl, controller.sock and log/. `uid` is the
    user who may use the controller's socket. `machine_of` makes the machine from the topology, a folder for
    its logs, and `progress`; it is entered and left here.
    """

    def __init__(
        self,
        topology: Topology,
        folder: Path,
        uid: int | None = None,
        progress: Progress = _silent,
        machine_of: Callable[[Topology, Path, Progress], Machine] = Local,
    ) -> None:
        self.topology = topology
        self._folder, self._uid, self._progress = folder, uid, progress
        self._log = folder / "log"
        self._stack = ExitStack()
        self._controller: subprocess.Popen[bytes] | None = None
        self.controller_restarts = 0
        self.model: ModelProcess | None = None
        self.machine = machine_of(topology, self._log, progress)
        self.ending = threading.Event()
        self._ends_because = ""

    @property
    def controller_socket(self) -> Path:
        return self._folder / "controller.sock"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(with_programs(self.topology.programs, self.topology.chosen_programs))
            self._log.mkdir(exist_ok=True)
            (self._folder / "topology.json").write_text(self.topology.to_json())
            stack.callback(self._end_controller)
            self._start_controller(held=True)  # it imports its modules while programs are compiled
            stack.enter_context(self.machine)
            if is_users(self.topology.ocs.model):
                self.model = stack.enter_context(self._model_process())
            self.machine.load()
            self.programs = DevicePrograms(
                self._folder.name, self.topology, self.machine.programs, threading.Lock()
            )
            self.places = self._made_places(stack)
            stack.callback(self._end_controller)  # on leaving, first of all: the rest serves it
            self._begin_controller()
            self._await_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def give_up_requests(self, why: str) -> None:
        """Make waiting requests fail with `why`: the testbed ends."""
        self._ends_because = why
        self.ending.set()

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Query the controller. Waits while it is being restarted. Only `watch` restarts it, on its own
        thread: a process started by another thread would end with that thread.
        """
        return self._ask_once("ready", operation, **arguments)

    def tell_links(self, names: Sequence[str], is_up: bool) -> None:
        """Tell the controller which links were set up or down, sooner than the switches report it. A
        controller that does not run learns it from them.
        """
        with contextlib.suppress(TestbedError):
            rpc.call(self.controller_socket, "linked", timeout_s=_END_TIMEOUT_S, links=[*names], up=is_up)

    def _ask_once(self, state: str, operation: str, **arguments: Any) -> Any:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self._is(state):
            if time.monotonic() > deadline:
                why = f"the controller is not ready after {_READY_TIMEOUT_S:g} s"
                raise TestbedError(f"{operation}: {why}{self._lacks()}")
            if self.ending.wait(0.05):
                raise TestbedError(self._ends_because)
        try:
            return rpc.call(self.controller_socket, operation, **arguments)
        except rpc.AbsentError as error:
            if self.ending.is_set():
                raise TestbedError(self._ends_because) from error
            raise TestbedError(
                f"{operation}: the controller ended before it answered; its log ends: {self._last_words()}"
            ) from error

    def _is(self, state: str) -> bool:
        try:
            return rpc.require_answer(self.controller_socket, "the controller", state)
        except rpc.SilentError:
            raise
        except TestbedError:  # not running: `watch` restarts it
            return False

    def _lacks(self) -> str:
        """Return what the controller waits for, as a suffix for a message; "" if it does not answer."""
        with contextlib.suppress(TestbedError):
            lacks: list[str] = rpc.call(self.controller_socket, "lacks", timeout_s=_END_TIMEOUT_S)
            return f": {'; '.join(lacks)}" if lacks else ""
        return ""

    def ways(self, forest: Forest) -> list[Ways]:
        """Return the devices by which the results of each tree leave each unit, by the circuits that are
        decided, even if not all switches have been set yet: so results are routed while it is dark.
        """
        return ways(forest, partial(self._ask_once, "known"))

    def watch(self) -> list[Restart]:
        """Raise TestbedError if a process that the network needs has ended; restart the controller or
        switches that did.
        """
        self.machine.watch()
        restarts = start_again(self.machine.switches, self.places)
        if self._controller is not None and self._controller.poll() is not None:
            if self.controller_restarts >= CONTROLLER_RESTARTS:
                raise TestbedError(
                    f"controller: ended {self.controller_restarts + 1} times; its log ends: "
                    f"{self._last_words()}"
                )
            self.controller_restarts += 1
            if self.model:
                self.model.restart()
            self._start_controller()
        if self.model:
            self.model.watch()
        self.machine.switches.resettle(self.controller_socket)
        return restarts

    @property
    def controller_pid(self) -> int:
        """The process id of the controller; 0 if there is none."""
        return self._controller.pid if self._controller else 0

    def _made_places(self, stack: ExitStack) -> Places:
        tellers = stack.enter_context(ThreadPoolExecutor(_TOLD_AT_ONCE, "places"))
        lock = threading.Lock()
        places = Places(
            self.topology, self.machine.switches, self.machine.rings, lock, programs(), tellers.map
        )
        stack.callback(places.close)
        return places

    def _start_controller(self, held: bool = False) -> None:
        """Start the controller. With `held` it waits for `_begin_controller`."""
        library = self.topology.controller
        python = environment.controller_interpreter(library)
        argv = isolated("-m", "controller", "--library", library, path=python)
        argv += ["--topology", str(self._folder / "topology.json")]
        argv += ["--socket", str(self.controller_socket), "--history", str(self._folder / "history.jsonl")]
        argv += ["--listen-port", str(CONTROLLER_PORT), "--plane", str(self.machine.pins)]
        argv += ["--bridges", str(self.machine.bridges)]
        argv += ["--model", str(self._model_socket)] if is_users(self.topology.ocs.model) else []
        argv += ["--uid", str(self._uid)] if self._uid is not None else []
        argv += ["--held"] if held else []
        stdin = subprocess.PIPE if held else subprocess.DEVNULL
        with (self._log / "controller.log").open("ab") as log:
            self._controller = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=log,
                stderr=log,
                env=with_checkout(os.environ),  # ryu's environment contains only ryu
                preexec_fn=die_with_parent,
            )

    @property
    def _model_socket(self) -> Path:
        return self._folder / "model.sock"

    def _model_process(self) -> ModelProcess:
        caller = Caller.of(os.geteuid() if self._uid is None else self._uid)
        environ = worker_environment(os.environ, caller)
        return ModelProcess(
            self.machine.hosts.popen_aside, self.topology, self._model_socket, caller, environ
        )

    def _begin_controller(self) -> None:
        assert self._controller is not None
        assert self._controller.stdin is not None
        self._controller.stdin.close()

    def _await_ready(self) -> None:
        deadline, listens = time.monotonic() + _READY_TIMEOUT_S, False
        total = len(self.topology.switches) + bool(self.topology.optical_ports)
        self._progress("controller", 0, total)
        while True:
            assert self._controller is not None
            if self._controller.poll() is not None:
                raise TestbedError(
                    f"controller: ended with {self._controller.returncode}: {self._last_words()}"
                )
            try:
                if rpc.call(self.controller_socket, "ready"):
                    self._progress("controller", total, total)
                    return
            except TestbedError as error:
                waiting = str(error)
            else:
                waiting = "not every switch is connected and read back"
                if not listens:
                    self.machine.connect(CONTROLLER_PORT)
                    listens = True
                self.machine.switches.resettle(self.controller_socket)
            if time.monotonic() > deadline:
                raise TestbedError(
                    f"controller: {waiting}, {_READY_TIMEOUT_S:g} s after its start: {self._last_words()}"
                )
            self.machine.watch()
            self.machine.switches.require_alive()
            time.sleep(0.05)

    def _last_words(self) -> str:
        lines = (self._log / "controller.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"

    def _end_controller(self) -> None:
        if self._controller is None:
            return
        self._controller.terminate()
        try:
            self._controller.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._controller.kill()
            self._controller.wait()
        self._controller = None
