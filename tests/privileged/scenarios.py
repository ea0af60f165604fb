"""Scenarios on a running network. Each function returns its findings, which the tests judge."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.client import rpc
from testbed.daemon.network import Network
from testbed.dataplanes.xdp.plane import open_pinned
from testbed.errors import RequestError
from testbed.local.local import PIN_DIR
from testbed.ocs.glimpses import Darkness
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.units import Unit
from testbed.wire.settings import written
from tests.forests import p4inc
from tests.privileged.echoes import Echoes

END_S = 120.0
WATCH_AHEAD_NS = 1_500_000
WIRINGS = [[["u1o1", "u3o1"], ["u2o1", "u4o1"]], [["u1o1", "u2o1"], ["u3o1", "u4o1"]]]


def ping(network: Network, host: str, ip: str) -> dict[str, Any]:
    """Return the packets sent and received."""
    with Echoes(network, host, ip) as echoes:
        for _ in range(5):
            echoes.await_answer()
    return echoes.figures()


def pings(network: Network) -> list[dict[str, Any]]:
    """Ping between hosts of one unit, of neighbours, and over two hops."""
    return [
        ping(network, a, ip) for a, ip in (("u1h1", "10.0.1.2"), ("u1h2", "10.0.2.3"), ("u2h4", "10.0.4.1"))
    ]


def reconfiguration(network: Network) -> dict[str, Any]:
    """Send echoes over a permanent circuit, and from a unit whose circuits change, while circuits change."""
    with Echoes(network, "u3h1", "10.0.2.1") as untouched, Echoes(network, "u1h1", "10.0.3.2") as changing:
        for echoes in (untouched, changing):
            echoes.await_answer()
        event = network.ask("request", demands=[["u1", "u3"], ["u2", "u3"]])
        for echoes in (untouched, changing):
            echoes.await_answer()
    return {
        "event": event,
        "untouched": untouched.figures(),
        "changing": changing.figures(to_the_last=False),
        "again": network.ask("request", demands=[["u1", "u3"], ["u2", "u3"]]),
        "history": network.ask("history"),
        "verdicts": network.machine.verdicts(),
        "after": ping(network, "u1h1", "10.0.3.1"),
    }


def dark_times(network: Network) -> list[dict[str, float]]:
    """Return the events of ten reconfigurations in a row."""
    return [network.ask("apply", circuits=WIRINGS[turn % 2]) for turn in range(10)]


def timetable(network: Network) -> dict[str, Any]:
    """Send echoes to two units, each of which is a neighbour in only one of two matchings, and measure guard
    times by probes.
    """
    before = network.ask("circuits")
    with Echoes(network, "u1h1", "10.0.3.1") as first, Echoes(network, "u1h1", "10.0.2.1") as second:
        matchings = [{"start_ms": 10 * turn, "circuits": wiring} for turn, wiring in enumerate(WIRINGS)]
        described = {"period_ms": 20, "guard_ms": 1, "matchings": matchings}
        network.ask("schedule", schedule=described)
        guards_ns = [watched(network.topology, 10_000_000, 1_000_000) for _ in range(5)]
        for _ in range(10):
            for echoes in (first, second):
                echoes.await_answer()
        refused = refusal(lambda: network.ask("request", demands=[["u1", "u4"]]))
        crossings, shown = network.ask("crossings"), network.ask("circuits")
        network.ask("unschedule")
    return {
        "guards_ns": [[guard.longest_ns, guard.resolution_ns] for guard in guards_ns],
        "echoes": [echoes.figures(to_the_last=False) for echoes in (first, second)],
        "crossings": crossings,
        "refused": refused,
        "scheduled": shown.pop("schedule"),
        "same": shown == before == network.ask("circuits"),
        "after": ping(network, "u1h1", "10.0.3.1"),
    }


def refusal(ask: Callable[[], Any]) -> str:
    """Return the message of the error that is raised, or ""."""
    try:
        ask()
    except RequestError as error:
        return str(error)
    return ""


def watched(topology: Topology, slot_ns: int, guard_ns: int) -> Darkness:
    """Return the next guard time at the first port, of a timetable whose matchings all last `slot_ns`. A
    guard time whose beginning this process missed is skipped.
    """
    names = {addresses.parse_optical_port(port) for port in topology.optical_ports}
    devices = {addresses.oxc_port_number(*name): addresses.oxc_device(*name) for name in names}
    plane = open_pinned(PIN_DIR, devices)
    start_ns, port = plane.kept_from_ns(), addresses.oxc_port_number(Unit(1), 1)
    with contextlib.closing(plane), preferred():
        while True:
            ahead_ns = max(time.monotonic_ns() + WATCH_AHEAD_NS - start_ns, 0)
            dark_at_ns = start_ns + -(-ahead_ns // slot_ns) * slot_ns
            glimpses = plane.watch(port, dark_at_ns, dark_at_ns + guard_ns)
            if 0 < glimpses.lit_ns < dark_at_ns + guard_ns:
                return glimpses.darkness(dark_at_ns, time.monotonic_ns())


@contextlib.contextmanager
def preferred() -> Iterator[None]:
    """Run this thread before all others during the block, where that is allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def controller_dies(network: Network) -> dict[str, Any]:
    """Kill the controller under traffic; it is started again and takes over."""
    before = network.ask("apply", circuits=WIRINGS[0])
    circuits = network.ask("circuits")
    with Echoes(network, "u1h1", "10.0.3.1", 0.01) as traffic:
        traffic.await_answer()
        pid = network.controller_pid
        os.kill(pid, signal.SIGKILL)
        while network.controller_pid == pid:
            network.watch()
            time.sleep(0.02)
        after = network.ask("circuits")
        traffic.await_answer()
    return {
        "before": before["id"],
        "same": after == circuits,
        "traffic": traffic.figures(),
        "history": [event["id"] for event in network.ask("history")],
        "next": network.ask("apply", circuits=WIRINGS[1])["id"],
        "restarts": network.controller_restarts,
    }


def sums(network: Network) -> dict[str, Any]:
    """Run a job in one unit and, after it, one over two units, without loss."""
    return {
        "one": job(network, 11, [(1, 1), (1, 2), (1, 3)], None),
        "two": job(network, 12, [(1, 1), (1, 2), (2, 1)], (3, 1)),
    }


def sums_while_rewired(network: Network) -> dict[str, Any]:
    """Run a job over two units while its circuits change: the partial sums and results of one unit then pass
    through a third.
    """
    wirings = [
        [["u1o1", "u4o1"], ["u4o2", "u3o1"], ["u2o1", "u3o2"]],
        [["u1o1", "u3o1"], ["u2o1", "u3o2"]],
        [["u1o2", "u2o2"], ["u2o1", "u3o2"]],
    ]
    events: list[Any] = []
    members = [(1, 1), (1, 2), (2, 1)]

    def rewire() -> None:
        for turn in range(9):
            events.append(network.ask("apply", circuits=wirings[turn % 3]))
            network.places.reroute(13, network.ways(p4inc(members, (3, 1))))
            time.sleep(0.1)  # let it sum over these circuits

    workers = job(network, 13, members, (3, 1), rewire)
    return {"workers": workers, "events": len(events)}


def job(
    network: Network,
    number: int,
    hosts: Sequence[tuple[int, int]],
    ps: tuple[int, int] | None,
    meanwhile: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """Run workers that all-reduce known arrays, until `meanwhile` has returned. Return what each of
    them found.
    """
    forest = p4inc(hosts, ps)
    if forest.demands():
        network.ask("request", demands=[list(map(addresses.unit_name, pair)) for pair in forest.demands()])
    admission = network.places.admit(number, number, forest, network.ways(forest))
    try:
        processes = []
        for worker, host in enumerate(hosts):
            settings = written(admission.worker_env(worker))
            processes.append(
                network.machine.fabric.popen_in(
                    addresses.host_name(*host),
                    [sys.executable, "-m", "tests.privileged.summing_worker", settings],
                    cwd=Path(__file__).resolve().parents[2],
                    stdin=subprocess.PIPE if meanwhile else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    pass_fds=admission.worker_fds(worker),
                )
            )
        if meanwhile:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == b"first\n"
            meanwhile()
            for process in processes:
                assert process.stdin is not None
                process.stdin.close()
                process.stdin = None
        return [json.loads(process.communicate(timeout=END_S)[0].splitlines()[-1]) for process in processes]
    finally:
        network.places.release(number)


def congestion(network: Network) -> dict[str, Any]:
    """Let a push of a later fragment arrive, in a worker's name, for a slot that the worker's first fragment
    occupies.
    """
    admission = network.places.admit(15, 15, p4inc([(1, 1), (1, 2)]))

    def start(module: str, worker: int, *words: str) -> subprocess.Popen[bytes]:
        return network.machine.fabric.popen_in(
            addresses.host_name(1, worker + 1),
            [
                sys.executable,
                "-m",
                f"tests.privileged.{module}",
                written(admission.worker_env(worker)),
                *words,
            ],
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
            pass_fds=admission.worker_fds(worker),
        )

    first = start("summing_worker", 0)
    deadline = time.monotonic() + END_S
    while not network.machine.verdicts()["aggregated"]:
        assert time.monotonic() < deadline, f"no push of the first worker within {END_S:g} s"
        time.sleep(0.01)
    start("intruder", 0, "11").communicate(timeout=END_S)
    second = start("summing_worker", 1)
    reports = [
        json.loads(process.communicate(timeout=END_S)[0].splitlines()[-1]) for process in (first, second)
    ]
    network.places.release(15)
    return {"workers": reports, "verdicts": network.machine.verdicts()}


def rejoin(network: Network) -> dict[str, Any]:
    """Start a worker's process a second time with the first's settings."""
    admission = network.places.admit(14, 14, p4inc([(1, 1)]))
    argv = [sys.executable, "-m", "tests.privileged.summing_worker", written(admission.worker_env(0))]
    ended = [
        network.machine.fabric.popen_in(
            "u1h1",
            argv,
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=admission.worker_fds(0),
        ).communicate(timeout=END_S)[0]
        for _ in range(2)
    ]
    network.places.release(14)
    return {"first": json.loads(ended[0].splitlines()[-1]), "again": ended[1].decode()}


def refusals(network: Network) -> list[str]:
    """Return the engine's answers to jobs that it cannot admit."""
    said = []
    forest = p4inc([(1, 1), (1, 2)])
    network.places.admit(1, 1, forest)
    for number, other in ((1, p4inc([(2, 1)])), (2, forest)):
        try:
            network.places.admit(number, number, other)
        except Exception as error:  # the error is the finding
            said.append(f"{type(error).__name__}: {error}")
    held = network.places.occupancy()
    network.places.release(1)
    return [*said, *(f"{place} {jobs}" for place, jobs in held.items()), str(network.places.occupancy())]


def socket_mode(network: Network) -> int:
    """Return the permissions of the controller's socket."""
    rpc.call(network.controller_socket, "ready")
    return network.controller_socket.stat().st_mode & 0o777
