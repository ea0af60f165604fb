"""Convert a running testbed to the scheduling model's terms, and a decision back to the testbed's. Pure.

Policies see the declared rates, and volumes multiplied by the scale: a transfer that takes a second at a
declared 40 Gb/s takes a second at the emulated 200 Mb/s. The model's units are indices from 0, the testbed's
are numbers from 1; only `index_of` and `unit_at` convert between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit
from testbed.ocs.exact import exact
from testbed.ocs.plan import PortTable
from testbed.ocs.timetable import Matching, Timetable
from testbed.scheduling.model import Decision, Job, Limits, Pair, Rotation, State, UnitIndex
from testbed.topology import addresses
from testbed.topology.model import Topology, UnitSpec
from testbed.topology.places import Host
from testbed.topology.units import Unit, UnitPair
from testbed.wire.spec import lanes_for, payload_bytes

# Ethernet, IPv4, UDP. TCP's headers are 10 bytes longer with timestamps, and carry no header of ours.
_HEADERS_BYTES = 14 + 20 + 8
LEAST_SHARE = 1e-3
"""The least share of a job's volume that policies see as remaining while its processes still run."""


def limits_of(
    topology: Topology, slot_s: float, step_gbps: float | None, programs: Mapping[str, str]
) -> Limits:
    """Compute the limits that a topology declares. `programs`, by engine, are those of the system that sums
    at switches (System.programs): in a unit with another engine, no job can use INC. Raises RequestError if
    links have no rate.
    """
    ports_gbps = tuple(_port_gbps(topology, unit) for unit in topology.units)
    port_gbps = min(ports_gbps)
    host_gbps = max(_host_gbps(topology, host) for unit in topology.units for host in _hosts_of(unit))
    return Limits(
        ports=tuple(map(len, topology.scheduled_ports.values())),
        inc=tuple(
            topology.inc.jobs if unit.engine in programs and unit.data_plane.sums else 0
            for unit in topology.units
        ),
        switch_gbps=(float("inf"),) * len(topology.units),
        port_gbps=port_gbps,
        host_gbps=host_gbps,
        ps_gbps=host_gbps,
        slot_s=slot_s,
        reconfiguration_s=topology.ocs.mean_ms(topology.first_plane) / 1e3,
        step_gbps=port_gbps / 4 if step_gbps is None else step_gbps,
        unit_port_gbps=() if len(set(ports_gbps)) == 1 else ports_gbps,
        core_gbps=_core_gbps(topology),
    )


def _core_gbps(topology: Topology) -> float:
    """Return the rate of the slowest link to the core; 0 without one."""
    if not topology.core_link:
        return 0.0
    names = [addresses.core_link_name(unit.index) for unit in topology.units]
    return min(_gbps(_key(topology, name, "core.rate_mbps"), topology.core_mbps(name)) for name in names)


def _port_gbps(topology: Topology, unit: UnitSpec) -> float:
    """Return the rate of a unit's slowest optical port; the topology's optical rate if it has none."""
    ports = unit.ports_in(topology.first_plane)
    if not ports:
        return _gbps("optical_rate_mbps", topology.optical_link.rate_mbps)
    return min(
        _gbps(_key(topology, name, "optical_rate_mbps"), topology.optical_mbps(name)) for name in ports
    )


def _key(topology: Topology, link: str, usual: str) -> str:
    """Return the configuration key that sets the rate of a link."""
    return f"links.{link}" if link in topology.link_rates else usual


def _gbps(key: str, rate_mbps: float | None) -> float:
    if rate_mbps is None:
        raise RequestError(f"{key}: unshaped; to schedule jobs, links need a rate")
    return rate_mbps / 1e3


def _hosts_of(unit: UnitSpec) -> tuple[Host, ...]:
    return unit.members


def _host_gbps(topology: Topology, host: Host) -> float:
    has_own_rate = bool(topology.unit(host[0]).unequal)
    usual = (
        f"units[{host[0] - 1}].hosts[{addresses.place_in_rack(host[1]) - 1}].rate_mbps"
        if has_own_rate
        else "host_rate_mbps"
    )
    key = _key(topology, addresses.host_name(*host), usual)
    return _gbps(key, topology.host(*host).rate_mbps)


def host_limits(topology: Topology, workers: Sequence[Host], server: Host | None) -> tuple[float, float]:
    """Return the declared Gb/s of the slowest link of a job's workers, and of its server's link; without a
    server, a worker's link twice, because the job's streams meet there.
    """
    slowest = min(_host_gbps(topology, host) for host in workers)
    return slowest, slowest if server is None else _host_gbps(topology, server)


def gigabits(topology: Topology, megabytes: float, iterations: int, lanes: int | None = None) -> float:
    """Compute the Gb that a worker sends at the declared rates, headers included, if its script sends
    `megabytes` in an iteration, in packets of `lanes` lanes; None: as many as the MTU holds.
    """
    lanes = lanes or lanes_for(topology.mtu)
    # TCP's full packets have the same overhead, to within half a per cent
    with_headers = (_HEADERS_BYTES + payload_bytes(lanes)) / (4 * lanes)
    return megabytes * 8e-3 * iterations * topology.scale * with_headers


def emulated_mbps(topology: Topology, rate_gbps: float) -> float:
    """Convert a declared rate in Gb/s to the emulated rate in Mb/s."""
    return rate_gbps * 1e3 / topology.scale


def model_job(
    id_: int,
    hosts: Iterable[Host],
    ps_unit: Unit,
    volume_gigabits: float,
    update_s: float,
    arrival: int,
    links_gbps: tuple[float, float] = (math.inf, math.inf),
) -> Job:
    """Make the model's job. `hosts` are its workers' (unit, host) and `ps_unit` its parameter server's unit,
    in the testbed's numbers; `links_gbps` is the result of `host_limits`.
    """
    counts: dict[UnitIndex, int] = {}
    for unit, _ in hosts:
        counts[index_of(unit)] = counts.get(index_of(unit), 0) + 1
    workers, (host_gbps, ps_gbps) = tuple(sorted(counts.items())), links_gbps
    return Job(
        id_,
        workers,
        index_of(ps_unit),
        volume_gigabits,
        update_s,
        arrival,
        host_gbps=host_gbps,
        ps_gbps=ps_gbps,
    )


def remaining_gigabits(volume_gigabits: float, done_share: float, slot_gigabits: float = 0.0) -> float:
    """Return the Gb that a job has left, as policies see it: at least the volume that its rate carries in a
    time slot (`slot_gigabits`). It holds that rate to the end of the time slot in any case. If the rate were
    lowered to the remainder in a fluid model, real workers would need further time slots.
    """
    rest = volume_gigabits * max(LEAST_SHARE, 1.0 - done_share)
    return max(rest, min(volume_gigabits, slot_gigabits))


def index_of(unit: Unit) -> UnitIndex:
    """Convert a unit of the testbed (from 1) to the model's index (from 0)."""
    return UnitIndex(unit - 1)


def unit_at(index: UnitIndex) -> Unit:
    """Convert an index of the model (from 0) to the testbed's unit (from 1)."""
    return Unit(index + 1)


def ports_of(lit: Mapping[UnitPair, int]) -> dict[Pair, int]:
    """Convert circuits between the testbed's units to the model's."""
    return {(index_of(a), index_of(b)): count for (a, b), count in sorted(lit.items())}


def circuits_of(ports: Mapping[Pair, int]) -> dict[UnitPair, int]:
    """Convert circuits between the model's units to the testbed's."""
    return {(unit_at(a), unit_at(b)): count for (a, b), count in sorted(ports.items()) if count}


def timetable_of(rotation: Rotation, ports: PortTable) -> Timetable:
    """Convert a checked rotation to matchings of the testbed's optical ports: a circuit of two consecutive
    turns keeps its ports.
    """
    matchings: list[Matching] = []
    lit: frozenset[Circuit] = frozenset()
    start_ms = 0.0
    for turn in rotation.turns:
        lit = exact(lit, circuits_of(turn.ports), ports)
        matchings.append(Matching(round(start_ms * 1e6), lit))
        start_ms += turn.lasts_ms
    return Timetable(round(start_ms * 1e6), round(rotation.guard_ms * 1e6), tuple(matchings))


@dataclass(frozen=True, slots=True)
class Actions:
    """The changes that a decision requests: jobs to start, with INC in a unit or without; rates to lower
    before circuits change; rates to raise after. Gb/s by job.
    """

    start: Mapping[int, UnitIndex | None]
    lower: Mapping[int, float]
    higher: Mapping[int, float]
    circuits: Mapping[UnitPair, int]


def actions(state: State, decision: Decision, had: Mapping[int, float] | None = None) -> Actions:
    """Compute the changes that a checked decision requests. `had` are the rates that jobs really have, if the
    state has others.
    """
    running = {progress.job.id: progress.rate_gbps for progress in state.jobs if progress.started is not None}
    running |= {job: gbps for job, gbps in (had or {}).items() if job in running}
    return Actions(
        start={job: decision.inc.get(job) for job in decision.rates if job not in running},
        lower={job: rate for job, rate in decision.rates.items() if job in running and rate < running[job]},
        higher={job: rate for job, rate in decision.rates.items() if job in running and rate > running[job]},
        circuits=circuits_of(decision.ports),
    )


def lasting(decision: Decision, present: Sequence[int]) -> Decision:
    """Restrict the last decision to the jobs still present; it stays in force while there is no new one."""
    return Decision(
        {job: rate for job, rate in decision.rates.items() if job in present},
        {job: unit for job, unit in decision.inc.items() if job in present},
        decision.ports,
        decision.rotation,
    )
