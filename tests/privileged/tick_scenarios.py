"""Ticks on a running network: the daemon completes sums at a ToR of any engine, and at a host at the top of a
tree.
"""

from __future__ import annotations

import json
import mmap
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from testbed.aggregation.grants import Admission
from testbed.daemon.network import Network
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.program import in_namespace
from testbed.topology import addresses
from testbed.topology.places import Host, at_host, switch
from testbed.wire import spec
from testbed.wire.frame import HEADERS_BYTES
from tests.forests import p4inc
from tests.vectors.build import push, sum_of, worker_lanes


def fabric(engine: str, mtu: int = 1500) -> str:
    """Return a configuration of two units of workers, the second of this engine, and a unit for a server."""
    return json.dumps(
        {
            "units": [{"hosts": 3}, {"hosts": 3, "engine": engine}, {"kind": "cpu", "hosts": 1}],
            "host_rate_mbps": 10_000,
            "optical_rate_mbps": 10_000,
            "scale": 100,
            "mtu": mtu,
        }
    )


TOP: Host = (3, 1)
LATE_S = 60.0
SOON_S = 5.0  # for a tick that is on its way
AGE_MS = 250
LACKING, COMPLETE, FORGED = 2, 3, 4  # fragments
PACED, TICKING = 256, 4  # ticks, and threads that send them


def ticked(network: Network) -> dict[str, Any]:
    """Return, for each unit's ToR and for the host, the workers' results before and after late ticks."""
    jobs: dict[str, tuple[list[Host], Any, Host | None]] = {
        "u1": ([(1, 1), (1, 2)], switch(1), None),
        "u2": ([(2, 1), (2, 2)], switch(2), None),
        "host": ([(1, 1), (2, 1)], at_host(TOP), TOP),
    }
    seen = {}
    for unit in (1, 2):  # so that the following jobs' slots do not begin at 0
        network.places.admit(unit, unit, p4inc([(unit, 3)]))
    for number, (name, (hosts, place, top)) in enumerate(jobs.items(), 21):
        forest = p4inc(hosts, top)
        if forest.demands():
            network.ask(
                "request", demands=[list(map(addresses.unit_name, pair)) for pair in forest.demands()]
            )
        admission = network.places.admit(number, number, forest, network.ways(forest))
        try:
            seen[name] = _ticks(network, admission, hosts, place)
        finally:
            network.places.release(number)
    for unit in (1, 2):
        network.places.release(unit)
    return seen


def paced(network: Network) -> dict[str, dict[str, float]]:
    """Return, by engine, for one thread and for several, the median milliseconds of a tick, and the ticks a
    second. Each completes a sum to which one of two workers has pushed.
    """
    jobs = {"xdp": ([(1, 1), (1, 2)], switch(1)), "bmv2": ([(2, 1), (2, 2)], switch(2))}
    paces = {}
    for number, (name, (hosts, place)) in enumerate(jobs.items(), 31):
        for threads in (1, TICKING):
            admission = network.places.admit(number, 10 * number + threads, p4inc(hosts), size=PACED * 2)
            fragments = [range(at, PACED, threads) for at in range(threads)]
            try:
                with _Counted(network, "aggregated", times=PACED):
                    for fragment in range(PACED):
                        _push(network, admission, hosts, 0, fragment)
                with _Counted(network, "ticked", times=PACED):
                    began = time.monotonic()
                    with ThreadPoolExecutor(threads) as pool:
                        calls = list(pool.map(partial(_paced, network, number, place), fragments))
                seconds = time.monotonic() - began
            finally:
                network.places.release(number)
            call_ms = statistics.median(call_s for of_thread in calls for call_s in of_thread) * 1e3
            paces[f"{name}, {threads} thread(s)"] = {"call_ms": call_ms, "a_second": PACED / seconds}
    return paces


def _paced(network: Network, job: int, place: Any, fragments: Sequence[int]) -> list[float]:
    """Send a tick for each fragment, and return the seconds of each."""
    took = []
    for fragment in fragments:
        began = time.monotonic()
        network.places.tick(job, 0, place, fragment, fragment, AGE_MS)
        took.append(time.monotonic() - began)
    return took


def _ticks(network: Network, admission: Admission, hosts: Sequence[Host], place: Any) -> dict[str, Any]:
    rings = [
        _mapped(admission.rings[rank].fd, layout.result(admission.lanes), admission.rings[rank].entries)
        for rank in range(len(hosts))
    ]

    def results(fragment: int, *members: int) -> list[list[Any]]:
        """Return by worker its ring's entry for a fragment: contributors, flags, and whether the lanes are
        the members' sum.
        """
        return [
            [
                int(ring[fragment]["contributors"]),
                int(ring[fragment]["flags"]) & 0xFF,
                bool(
                    (ring[fragment]["lanes"] == np.resize(sum_of(fragment, *members), admission.lanes)).all()
                ),
            ]
            for ring in rings
        ]

    def have(fragment: int) -> bool:
        return all(ring[fragment]["sequence"] == fragment + 1 for ring in rings)

    def tick(fragment: int) -> None:
        network.places.tick(admission.job, 0, place, fragment, fragment, AGE_MS)

    before = network.machine.verdicts()

    def happened() -> str:
        rises = {verdict: count - before[verdict] for verdict, count in network.machine.verdicts().items()}
        at = [int(ring[LACKING]["sequence"]) for ring in rings]
        return f"at {place}, {at}, { ({verdict: rise for verdict, rise in rises.items() if rise}) }"

    with _Counted(network, "aggregated"):
        _push(network, admission, hosts, 0, LACKING)
    for _ in range(3):  # a tick may be lost like any frame, so it is sent again
        tick(LACKING)
        if _holds_soon(lambda: have(LACKING)):
            break
    _await(lambda: have(LACKING), "the result of a fragment that was ticked", happened)
    seen: dict[str, Any] = {"ticked": results(LACKING, 0)}
    held = [ring[:8].tobytes() for ring in rings]
    with _Counted(network, "tick_late"):
        tick(LACKING)
    with _Counted(network, "late", "pull_duplicate"):
        _push(network, admission, hosts, 1, LACKING)
    seen["changed by late ones"] = [ring[:8].tobytes() for ring in rings] != held
    for rank in range(len(hosts)):
        _push(network, admission, hosts, rank, COMPLETE)
    _await(lambda: have(COMPLETE), "the result of a fragment that all contributed to")
    if place.at and admission.lanes > spec.LANES:
        with _Counted(network, "aggregated"):
            _push(network, admission, hosts, 0, FORGED)
        with _Counted(network, "bad_job"):
            _forge(network, admission, place.at)
        assert not have(FORGED)
    held = [ring[:8].tobytes() for ring in rings]
    with _Counted(network, "tick_late"):
        tick(COMPLETE)
    seen["changed by a tick of a whole sum"] = [ring[:8].tobytes() for ring in rings] != held
    seen["whole"] = results(COMPLETE, 0, 1)
    return seen


def _push(network: Network, admission: Admission, hosts: Sequence[Host], rank: int, fragment: int) -> None:
    """Send a worker's push from its host."""
    way = admission.worker_env(rank).trees[0]
    fields = {"job": admission.job, "generation": admission.generation}
    lanes = np.resize(worker_lanes(rank, fragment), admission.lanes)
    data = push(rank, fragment, slot=way.slot_base + fragment, data=lanes, **fields)[HEADERS_BYTES:]

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            opened.sendto(data, (way.address, spec.UDP_PORT))

    in_namespace(network.machine.fabric.host_namespace(addresses.host_name(*hosts[rank])), send)


def _forge(network: Network, admission: Admission, host: Host) -> None:
    """Send a tick as a user with a process at the host could: to an address that needs no neighbour entry."""
    fields = {"job": admission.job, "generation": admission.generation, "op": spec.Op.TICK, "count": 0}
    slot, lanes = admission.bases[0, at_host(host)] + FORGED, np.zeros(admission.lanes, np.uint32)
    data = push(0, FORGED, slot=slot, contributors=0, data=lanes, **fields)[HEADERS_BYTES:]

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            opened.setsockopt(
                socket.SOL_SOCKET, socket.SO_BINDTODEVICE, addresses.CONTROL_DEVICES[0].encode()
            )
            opened.sendto(data, ("239.1.1.1", spec.UDP_PORT))

    in_namespace(network.machine.fabric.host_namespace(addresses.host_name(*host)), send)


class _Counted:
    """Wait, on leaving the block, until each of these verdicts was counted `times` more often than on
    entering.
    """

    def __init__(self, network: Network, *verdicts: str, times: int = 1) -> None:
        self._network, self._verdicts, self._times = network, verdicts, times

    def __enter__(self) -> None:
        self._before = self._network.machine.verdicts()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            for verdict in self._verdicts:
                _await(lambda verdict=verdict: self._rise(verdict) >= self._times, verdict)  # type: ignore[misc]

    def _rise(self, verdict: str) -> int:
        return self._network.machine.verdicts()[verdict] - self._before[verdict]


def _holds_soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SOON_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def _await(holds: Callable[[], bool], what: str, happened: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + LATE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {LATE_S:g} s {happened()}"
        time.sleep(0.01)


def _mapped(fd: int, kind: np.dtype, count: int) -> np.ndarray:
    size = (kind.itemsize * count + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(fd, size), kind, count)
