"""Reads the optical switch's section of a configuration, `ocs`, and the files of values that it names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.topology import addresses
from testbed.topology.fields import integer, is_number, listed, mapping, read_lines, shown
from testbed.topology.model import UnitSpec, ring_circuits
from testbed.topology.optical import MOST_DELAY_MS, Delay, OcsSpec, OpticalPlane, Transceiver

MOST_FAILURE = 0.9
MOST_VALUES = 10_000
MOST_PLANES = 8
_OF_LOCK = ("lock_ms", "lock_failure", "retry_ms")
_OF_PLANE = ("switch_ms", *_OF_LOCK)
_PLANE = re.compile(r"[A-Za-z0-9]{1,16}")
_TRACES = {"trace_ms": 1.0, "trace_us": 1e-3}  # by the unit of a file's numbers
_ACCEPTED = (
    "milliseconds from 0 to 60000, {uniform: [low, high]}, {normal: [mean, deviation]}, {lognormal: [mean, "
    "deviation]}, {values: [...]}, {trace_ms: FILE} or {trace_us: FILE} is accepted"
)


def ocs(raw: Any, units: tuple[UnitSpec, ...], folder: Path | None) -> OcsSpec:
    """Return what a configuration says of the optical switch. Files that it names are in `folder`; None: it
    may name none. RequestError names the first thing that is wrong.
    """
    data = mapping(raw, "ocs", ("switch_ms", *_OF_LOCK, "ports", "planes", "seed", "circuits"))
    default, circuits = OcsSpec(), data.get("circuits", "ring")
    planes = {port: name for unit in units for name in _plane_names(unit) for port in unit.ports_in(name)}
    ports = set(planes)
    return OcsSpec(
        switch_ms=_delay(data, "switch_ms", "ocs", folder) or default.switch_ms,
        lock_ms=_delay(data, "lock_ms", "ocs", folder) or default.lock_ms,
        lock_failure=_failure(data, "ocs") or 0.0,
        retry_ms=_delay(data, "retry_ms", "ocs", folder),
        ports=_transceivers(data.get("ports", {}), ports, folder),
        planes=_planes(data, folder),
        seed=integer(data, "seed", default.seed, low=0, high=2**63 - 1, path="ocs."),
        circuits=ring_circuits(units) if circuits == "ring" else _circuits(circuits, planes),
    )


def _plane_names(unit: UnitSpec) -> list[str]:
    return [name for name, _ in unit.planes] or [""]


def plane_names(top: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the planes that a configuration has; nothing where it has one optical switch.
    RequestError if something else is there.
    """
    raw = top.get("ocs", {})
    planes = raw.get("planes", {}) if isinstance(raw, dict) else {}
    if not isinstance(planes, dict) or len(planes) > MOST_PLANES:
        raise RequestError(
            f"ocs.planes: {shown(planes)}; up to {MOST_PLANES} names, each with what the plane has of its "
            f"own of {listed(_OF_PLANE)}, are accepted"
        )
    for name in planes:
        if not isinstance(name, str) or not _PLANE.fullmatch(name):
            raise RequestError(
                f"ocs.planes.{name}: a name of up to 16 letters and digits is accepted, in quotes if it is a "
                f"number"
            )
    return tuple(planes)


def optical_ports(raw: Any, path: str, planes: tuple[str, ...]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return how many optical ports a unit has, and how many of each plane: of the first where it says one
    number.
    """
    most = addresses.MAX_OPTICAL_PORTS_PER_UNIT
    if not isinstance(raw, dict) or not planes:
        count = integer({path: raw}, path, 0, low=0, high=most)
        return count, ((planes[0], count),) if planes else ()
    data = mapping(raw, path, planes)
    counts = tuple((name, integer(data, name, 0, low=0, high=most, path=f"{path}.")) for name in planes)
    total = sum(count for _, count in counts)
    if total > most:
        raise RequestError(f"{path}: {shown(raw)}; at most {most} ports of all planes together are accepted")
    return total, tuple((name, count) for name, count in counts if count) or ((planes[0], 0),)


def _planes(data: Mapping[str, Any], folder: Path | None) -> tuple[OpticalPlane, ...]:
    """Return the planes, whose names `plane_names` has checked."""
    planes = []
    for name, said in data.get("planes", {}).items():
        path = f"ocs.planes.{name}"
        own = mapping(said, path, _OF_PLANE)
        switch_ms, lock_ms, retry_ms = (
            _delay(own, key, path, folder) for key in ("switch_ms", "lock_ms", "retry_ms")
        )
        planes.append(OpticalPlane(name, switch_ms, Transceiver(lock_ms, _failure(own, path), retry_ms)))
    return tuple(planes)


def _transceivers(raw: Any, ports: set[str], folder: Path | None) -> tuple[tuple[str, Transceiver], ...]:
    if not isinstance(raw, dict):
        raise RequestError(
            f"ocs.ports: {shown(raw)}; optical ports like u1o1, each with {listed(_OF_LOCK)}, are accepted"
        )
    own = []
    for port, said in raw.items():
        if port not in ports:
            raise RequestError(
                f"ocs.ports.{port}: {shown(said)}; no such optical port, there are {_listed(ports)}"
            )
        path = f"ocs.ports.{port}"
        data = mapping(said, path, _OF_LOCK)
        lock_ms, retry_ms = (_delay(data, key, path, folder) for key in ("lock_ms", "retry_ms"))
        own.append((port, Transceiver(lock_ms, _failure(data, path), retry_ms)))
    return tuple(own)


def _failure(data: Mapping[str, Any], path: str) -> float | None:
    raw: Any = data.get("lock_failure")
    if "lock_failure" not in data:
        return None
    if raw is None or not is_number(raw) or not 0 <= raw <= MOST_FAILURE:
        raise RequestError(
            f"{path}.lock_failure: {shown(raw)}; a probability from 0 to {MOST_FAILURE:g} is accepted"
        )
    return float(raw)


def _circuits(raw: Any, planes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw, list):
        raise RequestError(
            f"ocs.circuits: {shown(raw)}; the word ring or a list of pairs like [u1o1, u2o1] is accepted"
        )
    ports = set(planes)
    if 2 * len(raw) > len(ports):
        raise RequestError(
            f"ocs.circuits: {len(raw)} circuits; {len(ports)} optical ports carry at most {len(ports) // 2}"
        )
    used: set[str] = set()
    circuits = []
    for position, pair in enumerate(raw):
        path = f"ocs.circuits[{position}]"
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(end, str) for end in pair):
            raise RequestError(
                f"{path}: {shown(pair)}; a pair of optical ports like [u1o1, u2o1] is accepted"
            )
        for end in pair:
            if end not in ports:
                raise RequestError(f"{path}: {end}; no such optical port, there are {_listed(ports)}")
            if end in used:
                raise RequestError(f"{path}: {end} is in another circuit; a port carries one")
            used.add(end)
        a, b = pair
        if planes[a] != planes[b]:
            raise RequestError(
                f"{path}: {a} is of plane {planes[a]} and {b} of plane {planes[b]}; a circuit is within one "
                f"plane"
            )
        circuits.append((a, b))
    return tuple(circuits)


def _listed(ports: set[str]) -> str:
    return listed(sorted(ports, key=addresses.parse_optical_port)) or "none"


def _delay(data: Mapping[str, Any], key: str, path: str, folder: Path | None) -> Delay | None:
    """Return the duration of that key; None where it is not said."""
    raw: Any = data.get(key)
    if key not in data:
        return None
    if _is_duration(raw):
        return Delay("constant", float(raw))
    if isinstance(raw, dict) and len(raw) == 1:
        ((kind, values),) = raw.items()
        if kind in _TRACES and isinstance(values, str):
            return Delay("values", values=_trace(values, _TRACES[kind], f"{path}.{key}", folder))
        if kind == "values" and isinstance(values, list) and _are_durations(values):
            if 1 <= len(values) <= MOST_VALUES:
                return Delay("values", values=tuple(map(float, values)))
        elif isinstance(values, list) and len(values) == 2 and _are_durations(values):
            a, b = map(float, values)
            if kind == "normal" or (kind == "uniform" and a <= b) or (kind == "lognormal" and a > 0):
                return Delay(kind, a, b)
    raise RequestError(f"{path}.{key}: {shown(raw)}; {_ACCEPTED}")


def _is_duration(raw: Any) -> bool:
    return is_number(raw) and 0 <= raw <= MOST_DELAY_MS


def _are_durations(values: list[Any]) -> bool:
    return all(map(_is_duration, values))


def _trace(name: str, unit_ms: float, key: str, folder: Path | None) -> tuple[float, ...]:
    """Return the durations in a file, one a line, in milliseconds; empty lines and what follows a # say
    nothing.
    """
    if folder is None:
        raise RequestError(f"{key}: trace {name}; a file is accepted in a YAML file, {{values: [...]}} here")
    path, values = folder / name, []
    for number, line in enumerate(read_lines(path), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        try:
            value_ms = float(said) * unit_ms
        except ValueError:
            value_ms = math.nan
        if not 0 <= value_ms <= MOST_DELAY_MS:
            raise RequestError(
                f"{key}: {path} line {number}: {shown(said)}; a number from 0 to "
                f"{MOST_DELAY_MS / unit_ms:.0f} is accepted"
            )
        values.append(value_ms)
        if len(values) > MOST_VALUES:
            break
    if not 1 <= len(values) <= MOST_VALUES:
        many = f"more than {MOST_VALUES}" if values else "no"
        raise RequestError(f"{key}: {path} has {many} values; 1 to {MOST_VALUES} are accepted")
    return tuple(values)
