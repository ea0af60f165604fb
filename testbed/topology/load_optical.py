"""Reads the optical switch's section of a configuration, `ocs`, by the parameters that its model declares,
and the files of values that it names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.optics.delays import MOST_DELAY_MS, Delay
from testbed.optics.model import Duration, Parameter, Quantity, Settings, Whole, Word, YesNo
from testbed.topology import addresses
from testbed.topology.fields import choice, flag, integer, is_number, listed, mapping, read_lines, shown
from testbed.topology.model import UnitSpec, ring_circuits
from testbed.topology.optical import USUAL, Group, OcsSpec
from testbed.topology.yaml_form import values_said

MOST_VALUES = 10_000
MOST_PLANES = 8
GENERAL = ("ports", "planes", "seed", "circuits", "model")
"""The keys of `ocs` that are no model's parameters."""

_OF_PLANE = tuple(each.name for each in USUAL.parameters if each.of_planes)
_PLANE = re.compile(r"[A-Za-z0-9]{1,16}")
_MODEL = re.compile(r"[a-z][a-z0-9_]*|.+\.py:[A-Za-z_]\w*")
MODELS_ACCEPTED = "FILE.py:CLASS, or a name of the testbed's own,"
_TRACES = {"trace_ms": 1.0, "trace_us": 1e-3}  # by the unit of a file's numbers
_ACCEPTED = (
    "milliseconds from 0 to 60000, {uniform: [low, high]}, {normal: [mean, deviation]}, {lognormal: [mean, "
    "deviation]}, {values: [...]}, {trace_ms: FILE} or {trace_us: FILE} is accepted"
)

Parameters = Sequence[Parameter]


def ocs(raw: Any, units: tuple[UnitSpec, ...], folder: Path | None) -> OcsSpec:
    """Return what a configuration says of the optical switch. Files that it names are in `folder`; None: it
    may name none. RequestError names the first thing that is wrong.
    """
    model = _model(raw, folder)
    is_usual = model == USUAL.name
    data = (
        mapping(raw, "ocs", (*(each.name for each in USUAL.parameters), *GENERAL)) if is_usual else dict(raw)
    )
    default, circuits = OcsSpec(), data.get("circuits", "ring")
    planes = {port: name for unit in units for name in _plane_names(unit) for port in unit.ports_in(name)}
    if is_usual:
        settings = read_settings(USUAL.parameters, _said(data), set(planes), folder)
    else:
        settings = _said(data)
        _check_ports(settings.ports, set(planes), ())
        _check_words(settings)
    return OcsSpec(
        settings=settings,
        seed=integer(data, "seed", default.seed, low=0, high=2**63 - 1, path="ocs."),
        circuits=ring_circuits(units) if circuits == "ring" else _circuits(circuits, planes),
        model=model,
    )


def _model(raw: Any, folder: Path | None) -> str:
    """Return the model that is named: a user's with its file's whole path. Whether it is there, is asked
    later, and as the user.
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
    """RequestError for words that no model could read, whatever it declares: a plane or a port without keys
    and values, or a key that is no text.
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
    """Return the words of `ocs` that are a model's to read."""
    own = {key: value for key, value in data.items() if key not in GENERAL}
    return Settings(own, data.get("planes", {}), data.get("ports", {}))


def read_settings(
    parameters: Parameters, said: Settings, ports: set[str], folder: Path | None = None
) -> Settings:
    """Return the values of a model's parameters from words of a YAML file, whose planes `plane_names` has
    checked. RequestError names the first thing that is wrong.
    """
    names = [each.name for each in parameters]
    data = mapping(said.values, "ocs", (*names, *GENERAL))
    values = _values(parameters, data, "ocs", folder)
    of_ports = [each for each in parameters if each.of_ports]
    _check_ports(said.ports, ports, [each.name for each in of_ports])
    own = {port: _own(of_ports, words, f"ocs.ports.{port}", folder) for port, words in said.ports.items()}
    of_planes = [each for each in parameters if each.of_planes]
    planes = {
        name: _own(of_planes, words, f"ocs.planes.{name}", folder) for name, words in said.planes.items()
    }
    return Settings({each.name: default_of(each) for each in parameters} | values, planes, own)


def default_of(parameter: Parameter) -> Any:
    """Return a parameter's default as a file that says it has it: a `Delay`, say, where a number is declared
    for one. RequestError for a default that no file can say.
    """
    if parameter.default is None:
        return None
    return read_value(parameter, values_said({parameter.name: parameter.default}), "default of", None)


def _own(parameters: Parameters, said: Any, path: str, folder: Path | None) -> dict[str, Any]:
    data = mapping(said, path, tuple(each.name for each in parameters))
    return _values(parameters, data, path, folder)


def _values(parameters: Parameters, data: Group, path: str, folder: Path | None) -> dict[str, Any]:
    """Return the values that are said, by parameter."""
    return {each.name: read_value(each, data, path, folder) for each in parameters if each.name in data}


def read_value(parameter: Parameter, data: Group, path: str, folder: Path | None) -> Any:
    """Return a parameter's value from what a configuration says below `path`. RequestError says what is
    accepted.
    """
    key, kind = parameter.name, parameter.kind
    raw: Any = data[key]
    match kind:
        case Duration():
            return _delay(raw, f"{path}.{key}", folder)
        case Quantity(low, high, noun):
            if not is_number(raw) or not low <= raw <= high:
                raise RequestError(f"{path}.{key}: {shown(raw)}; {noun} from {low:g} to {high:g} is accepted")
            return float(raw)
        case Whole(low, high):
            return integer(data, key, 0, low=low, high=high, path=f"{path}.")
        case Word(accepted):
            return choice(data, key, "", accepted, path)
        case YesNo():
            return flag(data, key, False, path)


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


def _delay(raw: Any, key: str, folder: Path | None) -> Delay:
    """Return the duration that is said at that key."""
    if _is_duration(raw):
        return Delay("constant", float(raw))
    if isinstance(raw, dict) and len(raw) == 1:
        ((kind, values),) = raw.items()
        if kind in _TRACES and isinstance(values, str):
            return Delay("values", values=_trace(values, _TRACES[kind], key, folder))
        if kind == "values" and isinstance(values, list) and _are_durations(values):
            if 1 <= len(values) <= MOST_VALUES:
                return Delay("values", values=tuple(map(float, values)))
        elif isinstance(values, list) and len(values) == 2 and _are_durations(values):
            a, b = map(float, values)
            if kind == "normal" or (kind == "uniform" and a <= b) or (kind == "lognormal" and a > 0):
                return Delay(kind, a, b)
    raise RequestError(f"{key}: {shown(raw)}; {_ACCEPTED}")


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
