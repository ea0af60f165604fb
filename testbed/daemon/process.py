"""The process that is a testbed, inside its namespaces: brings the network up, serves requests, runs jobs,
ends in order.

Started by testbed/up.py, with which it talks over the descriptor `--main`, a JSON object a line: it says what
it does and how it ended, and ends when asked or when the other side is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.cgroups.hierarchy import Cgroups
from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.requests import (
    CaptureRequest,
    CircuitsRequest,
    CommandRequest,
    FaultRequest,
    LinkRequest,
    asked,
)
from testbed.client.runtime import Runtime
from testbed.client.terminal_text import line
from testbed.client.up_messages import (
    DaemonReady,
    EndedInOrder,
    NetworkSummary,
    UpFailure,
    UpMessage,
    UpNote,
    UpPhase,
    as_line,
)
from testbed.daemon import capture, circuits, faults, links, status
from testbed.daemon.commands import Commands
from testbed.daemon.network import Network
from testbed.daemon.start_commands import StartCommands
from testbed.errors import HostError, RequestError, TestbedError
from testbed.jobs.journal import Journal, fault_in_words, link_in_words
from testbed.jobs.manager import Jobs, held_hosts, means_of
from testbed.jobs.request import numbers, reason
from testbed.jobs.user_files import UserFiles
from testbed.local.local import Local
from testbed.local.names import mount_names
from testbed.messages.coding import UNSET, UnsetType, as_json, decode, encoded
from testbed.messages.controller import LitCircuits
from testbed.messages.journal import JournalAnswer
from testbed.messages.status import ControllerStatus, CoreStatus, Status
from testbed.queue.scheduler import Scheduler
from testbed.topology.model import Topology

_TICK_S = 0.2
_JOBS_END_S = 8.0
_COMMANDS_END_S = 5.0
LASTING = ("run", "submit", "capture", "exec")  # requests that last as long as the work that they start


class Ended(Exception):
    """The testbed was asked to end while it was starting."""


class EndWish:
    """A request to end that wakes those who wait for its descriptor. For any thread, and for signal
    handlers.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def set(self) -> None:
        os.eventfd_write(self._fd, 1)

    def is_set(self) -> bool:
        return bool(select.select([self], [], [], 0)[0])


class Main:
    """The connection to the main process."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()

    def say(self, message: UpMessage) -> None:
        """Send a message to the main process; do nothing if it is gone, which `wants_end` reports."""
        with self._lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(as_line(message))

    def wants_end(self, wait_s: float = 0.0, or_else: Sequence[EndWish] = ()) -> bool:
        """Return whether the main process sent anything or is gone, or whether another end was requested."""
        waking: list[socket.socket | EndWish] = [self._socket, *or_else]
        return bool(select.select(waking, [], [], wait_s)[0])


class Daemon:
    """A testbed's state, and its answers to requests."""

    def __init__(
        self,
        runtime: Runtime,
        topology: Topology,
        owner: Caller,
        main: Main,
        main_pid: int,
        cgroups: Cgroups,
    ) -> None:
        self._runtime, self._topology, self._owner, self._cgroups = runtime, topology, owner, cgroups
        self._main, self._main_pid = main, main_pid
        self._began_unix = time.time()
        self._state = "starting"
        self._end = EndWish()
        self._controller_restarts = 0
        self._lit: tuple[tuple[tuple[str, str], ...], tuple[str, ...]] | None = None  # and links down
        self._journal = Journal()

    def run(self) -> None:
        """Start the testbed, serve requests, and end it. Raises the error that made it fail."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._end.set())
        uid = self._owner.uid
        try:
            mount_names(self._topology, self._runtime.folder)
        except OSError as error:
            raise HostError(f"put the hosts' names in place of /etc/hosts: {error.strerror}") from error
        # all namespaces end with this process: the kernel then deletes their devices, faster than one by one
        local = partial(Local, cgroups=self._cgroups, leaves_devices=True)
        network = Network(self._topology, self._runtime.folder, uid, self._progress, local)
        with network:
            self._open(network)
            threading.Thread(target=self._follow_turns, name="follow-turns", daemon=True).start()
            with self._starts, rpc.serve(self._runtime.socket, self._handle, uid, LASTING):
                self._state = "ready"
                self._main.say(DaemonReady(self._summary()))
                why = "the testbed is ending"
                try:
                    self._watch()
                except TestbedError as error:
                    why = f"the testbed is ending: {error}"
                    raise
                finally:
                    self._state = "ending"
                    self._network.give_up_requests(why)
                    self._main.say(UpPhase("ending", 0, 0))
                    self._commands.stop_all(why, _COMMANDS_END_S)
                    self._scheduler.end(why)
                    self._jobs.stop_all(why, _JOBS_END_S)

    def _open(self, network: Network) -> None:
        """Create the objects that answer requests, on a network that is up."""
        self._network, machine = network, network.machine
        # started outside the daemon's own network namespace: a user may inspect processes that run as that
        # user
        self._files = UserFiles(machine.hosts.popen_aside)
        means = means_of(
            runtime=self._runtime,
            topology=self._topology,
            machine=machine,
            controller=network.ask,
            places=network.places,
            files=self._files,
            require_programs=network.programs.require,
        )
        self._jobs = Jobs(means, self._journal.add)
        self._commands = Commands(machine.hosts, self._jobs.visited)
        self._starts = StartCommands(
            machine.hosts,
            self._topology.commands,
            self._owner,
            self._runtime.log,
            self._jobs.visited,
            self._note,
        )
        self._scheduler = Scheduler(self._topology, self._jobs, self._runtime.jobs / "policy", self._note)

    def _progress(self, phase: str, done: int, total: int) -> None:
        if self._main.wants_end(or_else=[self._end]):
            raise Ended
        self._main.say(UpPhase(phase, done, total))

    def _watch(self) -> None:
        """Watch until asked to end. Raises TestbedError when a process ends that the testbed cannot do
        without.
        """
        while not self._main.wants_end(_TICK_S, or_else=[self._end]):
            for restart in self._network.watch():
                self._jobs.fail(restart.jobs, f"{restart}, and with it what it had summed")
                self._note(f"{restart} and was started again (restart {restart.count})")
            for job, why in self._network.places.failures().items():
                self._jobs.fail_now(job, why)
            self._starts.watch()
            self._follow_circuits()
            if self._network.controller_restarts != self._controller_restarts:
                self._controller_restarts = self._network.controller_restarts
                self._note(
                    f"the controller ended and was started again (restart {self._controller_restarts})"
                )

    def _follow_turns(self) -> None:
        """Reroute running jobs when circuits change, while these are dark, whoever requested the change."""
        turns = -1
        while not self._end.is_set() and not self._network.ending.is_set():
            try:
                seen = rpc.call(self._network.controller_socket, "turned", other_than=turns)
            except TestbedError:  # not running: it will be restarted, and counts from 0 again
                turns = turns if turns == -1 else -2
                self._network.ending.wait(_TICK_S)
                continue
            if seen != turns and turns != -1:
                self._jobs.means.supply.follow_circuits(self._jobs.fail_now)
            turns = seen

    def _note(self, text: str) -> None:
        """Write a line to the screen of `up` and to the daemon's log."""
        text = line(text)
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)
        self._journal.add("note", text)
        self._main.say(UpNote(text))

    def _follow_circuits(self) -> None:
        """Reroute running jobs after circuits were changed without the daemon, as by `testbed circuits
        request`, or links went down or came back.
        """
        if not self._jobs.means.supply.across_units():
            self._lit = None
            return
        with contextlib.suppress(TestbedError):  # the controller is not running, so nothing changes
            light = decode(LitCircuits, self._ask_controller("circuits"), "circuits")
            lit = light.circuits, light.down
            if lit != self._lit and self._lit is not None:
                # on a thread of its own: this one has to restart the controller if that ends
                threading.Thread(
                    target=self._jobs.means.supply.follow_circuits,
                    args=(self._jobs.fail_now,),
                    name="follow-circuits",
                    daemon=True,
                ).start()
            self._lit = lit

    # ------------------------------------------------------------------ requests

    def _handle(
        self, request: dict[str, Any], peer: rpc.Peer, emit: rpc.Emit, disconnected: threading.Event
    ) -> Any:
        operation, asker = request["op"], Caller.asking(peer, request.get("uid"))
        if operation == "status":
            return encoded(self._status())
        if operation == "journal":
            (after,) = numbers([request.get("after", 0)], "after")
            return encoded(JournalAnswer(self._journal.after(after), self._jobs.so_far()))
        if operation in ("run", "submit"):
            work = self._jobs.run if operation == "run" else self._scheduler.submit
            asker.check_may_act(self._owner)
            try:
                return work(request, asker, lambda event: emit(as_json(event)), disconnected)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                traceback.print_exc()
                raise TestbedError(
                    f"{operation}: {type(error).__name__}: {error}; the daemon's log says more"
                ) from error
        if operation == "cancel":
            ids = numbers(request.get("jobs"), "jobs")
            return self._scheduler.cancel(ids, reason(request.get("reason", "cancelled")), asker)
        if operation == "stop":
            (job,) = numbers([request.get("job")], "job")
            return self._jobs.stop(job, reason(request.get("reason", "asked to end")), asker)
        if operation == "fault":
            fault = asked(FaultRequest, request)
            answer = as_json(faults.answer(self._network.machine.faults, fault))
            if fault.action != "list":
                self._journal.add("fault", fault_in_words(fault))
            return answer
        if operation == "link":
            link, network = asked(LinkRequest, request), self._network
            by_hand = network.machine.by_hand
            answer = as_json(links.answer(by_hand, self._jobs, link, network.tell_links))
            if link.action != "list":
                self._journal.add("link", link_in_words(link))
            return answer
        if operation == "circuits":
            layouts = self._jobs.means.holdings.layouts
            wanted = asked(CircuitsRequest, request)
            claimed = self._jobs.means.supply.claimed.by_job
            return as_json(circuits.answer(self._topology, layouts, self._network.ask, wanted, claimed))
        if operation == "capture":
            asker.check_may_act(self._owner)

            def is_over() -> bool:
                return disconnected.is_set() or self._state == "ending"

            frames = asked(CaptureRequest, request)
            return capture.answer(self._network.machine.tap, asker, frames, emit, is_over, self._files)
        if operation == "exec":
            if asker.uid != 0:  # only root can act so, and root may do all of this anyway
                asker.check_may_act(self._owner)
            command = asked(CommandRequest, request)
            if isinstance(command.host, str):
                names = self._topology.second_names
                command = replace(command, host=names.get(command.host.lower(), command.host))
            return as_json(self._commands.answer(command, asker, peer, emit, disconnected))
        if operation == "down":
            self._end.set()
            return None
        raise RequestError(
            f"op {operation!r}: accepted are status, journal, run, submit, cancel, stop, fault, link, "
            f"circuits, capture, exec, down"
        )

    def _summary(self) -> NetworkSummary:
        return NetworkSummary(
            units=len(self._topology.units),
            hosts=len(self._topology.host_names),
            circuits=decode(LitCircuits, self._network.ask("circuits"), "circuits").circuits,
            datapath=self._network.machine.datapath,
        )

    def _status(self) -> Status:
        jobs = self._jobs.status()
        controller, light = self._asked_controller()
        layouts, guests = self._jobs.means.holdings.layouts(), self._jobs.means.holdings.guests()
        lit, down = (light.circuits, light.down) if light else (None, ())
        used, circuit_jobs = circuits.uses(self._topology, lit, layouts, down)
        machine, core, busy = self._network.machine, self._topology.core_link, self._jobs.cores_busy()
        return Status(
            name=self._runtime.name,
            state=self._state,
            pid=self._main_pid,
            user=self._owner.user,
            configuration=self._topology.name,
            scale=self._topology.scale,
            uptime_s=round(time.time() - self._began_unix, 3),
            units=status.units(self._topology, machine.switches.restarts),
            hosts=status.hosts(self._topology, held_hosts(jobs), guests, self._starts.states()),
            core=CoreStatus(core.rate_mbps) if core else None,
            circuits=light.circuits if light else None,
            circuit_jobs=circuit_jobs,
            dark=light.dark if light else None,
            down=down,
            failed_locks=light.failed_locks if light else {},
            optical_model=status.optical_model(self._topology.ocs),
            timetable=light.timetable if light else None,
            controller=controller,
            datapath=machine.datapath,
            calendar=machine.calendar(),
            calendar_overrun=machine.calendar_overrun(),
            jobs=tuple(replace(job, uses=used.get(job.id)) for job in jobs),
            schedule=self._scheduler.status(),
            cores_busy=None if busy is None else tuple(busy),
            links=status.links(machine.links.statistics()),
            kept_apart=machine.hosts.kept_apart(),
            gone_links=machine.links.gone_links(),
            faults=machine.faults.states(),
            log=str(self._runtime.log),
        )

    def _asked_controller(self) -> tuple[ControllerStatus, LitCircuits | None]:
        """Query the controller's state and its circuits; None for the circuits if it is not running."""
        restarts = self._network.controller_restarts
        library: str | UnsetType = UNSET
        lacks: tuple[str, ...] | UnsetType = UNSET
        try:
            light = decode(LitCircuits, self._ask_controller("circuits"), "circuits")
            library = str(self._ask_controller("library"))
            lacks = tuple(self._ask_controller("lacks"))
        except TestbedError as error:  # circuits keep forwarding without it, and `status` keeps answering
            return ControllerStatus(
                state="away", restarts=restarts, library=library, lacks=lacks, ready=False, error=str(error)
            ), None
        return ControllerStatus(
            state="running", restarts=restarts, library=library, lacks=lacks, ready=not lacks
        ), light

    def _ask_controller(self, operation: str) -> Any:
        return rpc.call(self._network.controller_socket, operation, timeout_s=2.0)


def main(argv: list[str]) -> int:
    """Run the daemon. Return 0 after a requested end, else the exit code of the error, which was sent to the
    main process.
    """
    parser = argparse.ArgumentParser(prog="python -m testbed.daemon.process", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--main", type=int, required=True, help="descriptor of the socket to the main process"
    )
    parser.add_argument("--main-pid", type=int, required=True)
    parser.add_argument("--uid", type=int, required=True, help="whose testbed it is")
    parser.add_argument("--limits", type=Path, help="the folder of the cgroups of hosts that have a limit")
    parser.add_argument("--enclosures", type=Path, help="the cgroup in which those of jobs are made")
    arguments = parser.parse_args(argv)
    os.set_inheritable(arguments.main, False)
    os.environ.pop(
        "SETUPTOOLS_USE_DISTUTILS", None
    )  # set by supervisor.py for imports that are complete by now
    peer = Main(arguments.main)
    peer.say(UpPhase("namespaces", 0, 0))
    runtime = Runtime(arguments.folder.name, arguments.folder)
    topology = Topology.from_json(runtime.topology.read_text())
    owner = Caller.of(arguments.uid)
    cgroups = Cgroups(arguments.limits, arguments.enclosures)
    daemon = Daemon(runtime, topology, owner, peer, arguments.main_pid, cgroups)
    try:
        daemon.run()
    except Ended:
        pass
    except TestbedError as error:
        peer.say(UpFailure(str(error), error.exit_code))
        return error.exit_code
    except Exception as error:  # a defect: the traceback goes to the daemon's log, one line to the user
        traceback.print_exc()
        words = f"daemon: {type(error).__name__}: {error} (more in {runtime.log / 'daemon.log'})"
        peer.say(UpFailure(words, 1))
        return 1
    peer.say(EndedInOrder(True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
