"""Read the optical switch's section of a configuration, `ocs`, by the parameters that its model declares, and
the files of values that it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.keys import Parameter
from testbed.optics.model import Settings
from testbed.topology import addresses
from testbed.topology.fields import listed, mapping, shown, whole
from testbed.topology.model import UnitSpec, ring_circuits
from testbed.topology.optical import GENERAL, USUAL, Group, OcsSpec
from testbed.topology.values import Reading, plain_values, read_said, read_value, value_said

MOST_PLANES = 8
_OF_PLANE = tuple(each.name for each in USUAL.parameters if each.of_planes)
_PLANE = re.compile(r"[A-Za-z0-9]{1,16}")
_MODEL = re.compile(r"[a-z][a-z0-9_]*|.+\.py:[A-Za-z_]\w*")
MODELS_ACCEPTED = "FILE.py:CLASS, or a name of the testbed's own,"
Parameters = Sequence[Parameter]


def ocs(raw: Any, units: tuple[UnitSpec, ...], folder: Path | None) -> OcsSpec:
    """Read a configuration's optical switch. Files that it names are in `folder`; None: it may name none.
    Raises RequestError for the first fault.
    """
    model = _model(raw, folder)
    is_usual = model == USUAL.name
    data = (
        mapping(raw, "ocs", (*(each.name for each in USUAL.parameters), *GENERAL)) if is_usual else dict(raw)
    )
    circuits = data.get("circuits", "ring")
    planes = {port: name for unit in units for name in _plane_names(unit) for port in unit.ports_in(name)}
    if is_usual:
        settings = read_settings(USUAL.parameters, _said(data), set(planes), folder)
    else:
        settings = _said(data)
        _check_ports(settings.ports, set(planes), ())
        _check_words(settings)
    return OcsSpec(
        settings=settings,
        **plain_values(OcsSpec, data, "ocs", Reading(folder)),
        circuits=ring_circuits(units) if circuits == "ring" else _circuits(circuits, planes),
        model=model,
    )


def _model(raw: Any, folder: Path | None) -> str:
    """Return the name of the model; a user's with its file's absolute path. Whether the file exists is
    checked later, as the user.
    """
    if not isinstance(raw, dict) or "model" not in raw:
        return USUAL.name
    model: Any = raw["model"]
    if not isinstance(model, str) or not _MODEL.fullmatch(model):
        raise RequestError(f"ocs.model: {shown(model)}; {MODELS_ACCEPTED} is accepted")
    file, _, attribute = model.rpartition(":")
    if not file or Path(file).is_absolute():
        return model
    if folder is None:
        raise RequestError(
            f"ocs.model: {model}; a relative path is accepted in a YAML file, a whole one here"
        )
    return f"{(folder / file).absolute()}:{attribute}"


def _check_words(said: Settings) -> None:
    """Raise RequestError for words that no model could read: a plane or port without keys and values, or a
    key that is no text.
    """
    groups = {"ocs": said.values}
    for kind, of in (("planes", said.planes), ("ports", said.ports)):
        groups |= {f"ocs.{kind}.{name}": own for name, own in of.items()}
    for path, own in groups.items():
        if not isinstance(own, dict):
            raise RequestError(
                f"{path}: {shown(own)}; keys and values are accepted, the keys being the model's parameters"
            )
        for key, value in own.items():
            if not isinstance(key, str):
                raise RequestError(
                    f"{path}.{key}: {shown(value)}; unknown key; accepted are the model's parameters"
                )


def _said(data: Group) -> Settings:
    """Return the words of `ocs` that its model reads."""
    values = {key: value for key, value in data.items() if key not in GENERAL}
    return Settings(values, data.get("planes", {}), data.get("ports", {}))


def read_settings(
    parameters: Parameters, said: Settings, ports: set[str], folder: Path | None = None
) -> Settings:
    """Read the values of a model's parameters from a YAML file's words; `plane_names` has checked the planes.
    Raises RequestError for the first fault.
    """
    reading = Reading(folder)
    port_parameters = [each for each in parameters if each.of_ports]
    plane_parameters = [each for each in parameters if each.of_planes]
    values = _values(parameters, said.values, "ocs", reading, GENERAL)
    _check_ports(said.ports, ports, [each.name for each in port_parameters])
    port_values = {
        port: _values(port_parameters, words, f"ocs.ports.{port}", reading)
        for port, words in said.ports.items()
    }
    planes = {
        name: _values(plane_parameters, words, f"ocs.planes.{name}", reading)
        for name, words in said.planes.items()
    }
    return Settings({each.name: default_of(each) for each in parameters} | values, planes, port_values)


def default_of(parameter: Parameter) -> Any:
    """Return a parameter's default in the form of a file's value: a `Delay`, say, if the declared default is
    a number. Raises RequestError for a default that no file can express.
    """
    if parameter.default is None:
        return None
    return read_value(parameter, {parameter.name: value_said(parameter.default)}, "default of", Reading())


def _values(
    parameters: Parameters, said: Any, path: str, reading: Reading, others: Sequence[str] = ()
) -> dict[str, Any]:
    """Read the given parameters' values; `others` are further accepted keys."""
    keys = {each.name: each for each in parameters}
    return read_said(keys, mapping(said, path, (*keys, *others)), path, reading)


def _check_ports(raw: Any, ports: set[str], names: Sequence[str]) -> None:
    if not isinstance(raw, dict):
        raise RequestError(
            f"ocs.ports: {shown(raw)}; optical ports like u1o1, each with "
            f"{listed(names or ['parameters'])}, are accepted"
        )
    for port, said in raw.items():
        if port not in ports:
            raise RequestError(
                f"ocs.ports.{port}: {shown(said)}; no such optical port, there are {_listed(ports)}"
            )


def _plane_names(unit: UnitSpec) -> list[str]:
    return [name for name, _ in unit.planes] or [""]


def plane_names(top: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a configuration's planes; empty if it has one optical switch. Raises RequestError
    for malformed planes.
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
    """Read how many optical ports a unit has, in total and by plane; a single number is the first plane's."""
    most = addresses.MAX_OPTICAL_PORTS_PER_UNIT
    if not isinstance(raw, dict) or not planes:
        count = whole(raw, path, 0, most)
        return count, ((planes[0], count),) if planes else ()
    data = mapping(raw, path, planes)
    counts = tuple((name, whole(data.get(name, 0), f"{path}.{name}", 0, most)) for name in planes)
    total = sum(count for _, count in counts)
    if total > most:
        raise RequestError(f"{path}: {shown(raw)}; at most {most} ports of all planes together are accepted")
    return total, tuple((name, count) for name, count in counts if count) or ((planes[0], 0),)


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
