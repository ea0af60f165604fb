"""The optical switch as frozen data: its model, with the model's settings, and which circuits are lit at
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from testbed.optics.delays import Delay
from testbed.optics.model import OpticalModel, Parameter, Settings
from testbed.optics.models.transceivers import Transceivers

USUAL: type[OpticalModel] = Transceivers
"""The model of a configuration that names none."""

Group = Mapping[str, Any]


def defaults(parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """Return the value of each parameter that a configuration leaves out."""
    return {parameter.name: parameter.default for parameter in parameters}


def with_values(**values: Any) -> Settings:
    """Return settings of the usual model: these values, and the defaults of the other parameters."""
    return Settings({**defaults(USUAL.parameters), **values})


_USUAL_SETTINGS = with_values()


@dataclass(frozen=True, slots=True)
class OcsSpec:
    """The optical switch: how long a reconfiguration keeps a port dark, as its model says, and what is lit at
    first.

    `model` is a name of `testbed.plugins.optical`, or FILE.py:CLASS, whose file is absolute. The settings
    of the usual model are values; those of another are words of a YAML file until that model reads them, and
    `means_ms` has its mean dark time by plane ("" where there is one optical switch), which is known once it
    has. `circuits` are pairs of optical port names such as ("u1o1", "u2o1"). Durations are real time: no
    scale touches them.
    """

    settings: Settings = _USUAL_SETTINGS
    seed: int = 1
    circuits: tuple[tuple[str, str], ...] = ()
    model: str = USUAL.name
    means_ms: Mapping[str, float] | None = None

    @property
    def planes(self) -> tuple[str, ...]:
        """The names of several optical switches; none where there is one."""
        return tuple(self.settings.planes)

    @property
    def is_usual(self) -> bool:
        return self.model == USUAL.name

    def mean_ms(self, plane: str = "") -> float:
        """Return the mean dark time of a plane's port, in milliseconds. KeyError where a model of another
        kind has not been asked.
        """
        if self.is_usual:
            return USUAL(self.settings, self.seed).mean_ms(plane)
        return (self.means_ms or {})[plane]

    def as_json(self) -> dict[str, Any]:
        """Return data that `of_json` reads. The usual model's settings have the form that they always had."""
        rest = {"seed": self.seed, "circuits": [list(circuit) for circuit in self.circuits]}
        if not self.is_usual:
            return {"model": self.model, **asdict(self.settings), "means_ms": self.means_ms, **rest}
        of_plane = [each.name for each in USUAL.parameters if each.of_planes and not each.of_ports]
        of_lock = [each.name for each in USUAL.parameters if each.of_ports]
        return {
            **_coded(self.settings.values, list(self.settings.values)),
            **rest,
            "ports": [[port, _coded(own, of_lock)] for port, own in self.settings.ports.items()],
            "planes": [
                {"name": name, **_coded(own, of_plane), "lock": _coded(own, of_lock)}
                for name, own in self.settings.planes.items()
            ],
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> OcsSpec:
        """Return what `as_json` was given, also by an earlier version. ValueError, TypeError or KeyError for
        other data.
        """
        default = cls()
        seed = int(data.get("seed", default.seed))
        circuits = tuple((str(a), str(b)) for a, b in data.get("circuits", ()))
        if "model" in data:
            settings = Settings(data["values"], data["planes"], data["ports"])
            return cls(settings, seed, circuits, str(data["model"]), data["means_ms"])
        said = {each.name: data[each.name] for each in USUAL.parameters if each.name in data}
        planes = {plane["name"]: _own({**plane.get("lock", {}), **plane}) for plane in data.get("planes", ())}
        ports = {port: _own(own) for port, own in data.get("ports", ())}
        return cls(Settings({**default.settings.values, **_decoded(said)}, planes, ports), seed, circuits)


def _coded(values: Group, names: list[str]) -> dict[str, Any]:
    """Return these values, null for one that is not there."""
    said = {name: values.get(name) for name in names}
    return {name: asdict(value) if isinstance(value, Delay) else value for name, value in said.items()}


def _decoded(data: Group) -> dict[str, Any]:
    return {name: _delay(value) if isinstance(value, dict) else value for name, value in data.items()}


def _delay(data: Group) -> Delay:
    made = Delay(**data)
    return replace(made, values=tuple(made.values))


def _own(data: Group) -> dict[str, Any]:
    """Return the values of a plane or a port that are its own."""
    names = [each.name for each in USUAL.parameters]
    return _decoded({name: data[name] for name in names if data.get(name) is not None})
