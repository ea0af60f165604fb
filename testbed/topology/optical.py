"""The optical switch as frozen data: its model with its settings, and the circuits that are lit at first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from testbed.keys import ByName, Either, ListOf, Parameter, Section, Text, Whole, Word, key, keys_of, names_of
from testbed.optics.delays import Delay
from testbed.optics.model import OpticalModel, Settings
from testbed.optics.models.transceivers import Transceivers

USUAL: type[OpticalModel] = Transceivers
"""The default model, of a configuration that names none."""

Group = Mapping[str, Any]


def defaults(parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """Return the default of each parameter."""
    return {parameter.name: parameter.default for parameter in parameters}


def with_values(**values: Any) -> Settings:
    """Return settings of the default model: these values, and the defaults of the other parameters."""
    return Settings({**defaults(USUAL.parameters), **values})


_USUAL_SETTINGS = with_values()


@dataclass(frozen=True, slots=True)
class OcsSpec:
    """The optical switch: its model, which determines how long a reconfiguration keeps a port dark, and the
    circuits that are lit at first.

    `model` is a name of `testbed.plugins.optical`, or FILE.py:CLASS with an absolute path. The settings of
    the default model are values; those of another are words of a YAML file until that model reads them. Then
    `means_ms` has the model's mean dark time by plane ("" if there is one optical switch). `circuits` are
    pairs of optical port names such as ("u1o1", "u2o1"). Durations are real time: the scale does not apply.
    """

    settings: Settings = _USUAL_SETTINGS
    of_ports: ClassVar[Parameter] = Parameter(
        "ports",
        ByName("optical port", Section(tuple(each for each in USUAL.parameters if each.of_ports), True)),
        None,
        "optical ports whose transceivers have values of their own",
    )
    of_planes: ClassVar[Parameter] = Parameter(
        "planes",
        ByName("plane", Section(tuple(each for each in USUAL.parameters if each.of_planes), True)),
        None,
        "several optical switches (planes) side by side, each with values of its own",
        usual="one",
    )
    seed: int = field(default=1, metadata=key(Whole(0, 2**63 - 1), "seed of all random draws of dark times"))
    circuits: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=key(
            Either(
                Word(("ring",)), ListOf("pairs of optical ports", ListOf("ports", Text("optical port"), 2, 2))
            ),
            "circuits that are lit at first",
            default="ring",
        ),
    )
    calendar_packets: int = field(
        default=200,
        metadata=key(
            Whole(0, 100_000),
            "how many packets for another unit wait at a unit for their time slot, while a timetable runs; "
            "further packets are lost; 0: no packet waits, and those without a lit circuit are lost",
        ),
    )
    model: str = field(
        default=USUAL.name,
        metadata=key(
            Text("FILE.py:CLASS or a name"),
            "the optical model: how long a change of circuits is dark; FILE.py:CLASS is a class of yours",
        ),
    )
    means_ms: Mapping[str, float] | None = None

    @property
    def planes(self) -> tuple[str, ...]:
        """The names of the planes; empty if there is one optical switch."""
        return tuple(self.settings.planes)

    @property
    def is_usual(self) -> bool:
        """Return whether the model is the default one."""
        return self.model == USUAL.name

    def mean_ms(self, plane: str = "") -> float:
        """Return the mean dark time of a plane's port in ms. Raises KeyError if another model has not been
        asked yet.
        """
        if self.is_usual:
            return USUAL(self.settings, self.seed).mean_ms(plane)
        return (self.means_ms or {})[plane]

    def as_json(self) -> dict[str, Any]:
        """Return data that `of_json` reads. The default model's settings keep the form of earlier
        versions.
        """
        rest = {
            "seed": self.seed,
            "circuits": [list(circuit) for circuit in self.circuits],
            "calendar_packets": self.calendar_packets,
        }
        if not self.is_usual:
            return {"model": self.model, **asdict(self.settings), "means_ms": self.means_ms, **rest}
        plane_names = [each.name for each in USUAL.parameters if each.of_planes and not each.of_ports]
        lock_names = [each.name for each in USUAL.parameters if each.of_ports]
        return {
            **_coded(self.settings.values, list(self.settings.values)),
            **rest,
            "ports": [[port, _coded(own, lock_names)] for port, own in self.settings.ports.items()],
            "planes": [
                {"name": name, **_coded(own, plane_names), "lock": _coded(own, lock_names)}
                for name, own in self.settings.planes.items()
            ],
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> OcsSpec:
        """Read the data that `as_json` returned, also in an earlier version. Raises ValueError, TypeError or
        KeyError for other data.
        """
        default = cls()
        seed = int(data.get("seed", default.seed))
        circuits = tuple((str(a), str(b)) for a, b in data.get("circuits", ()))
        packets = int(data.get("calendar_packets", default.calendar_packets))
        if "model" in data:
            settings = Settings(data["values"], data["planes"], data["ports"])
            return cls(settings, seed, circuits, packets, str(data["model"]), data["means_ms"])
        values = {each.name: data[each.name] for each in USUAL.parameters if each.name in data}
        planes = {plane["name"]: _own({**plane.get("lock", {}), **plane}) for plane in data.get("planes", ())}
        ports = {port: _own(own) for port, own in data.get("ports", ())}
        settings = Settings({**default.settings.values, **_decoded(values)}, planes, ports)
        return cls(settings, seed, circuits, packets)


def _coded(values: Group, names: list[str]) -> dict[str, Any]:
    """Return these values, None for a missing one."""
    chosen = {name: values.get(name) for name in names}
    return {name: asdict(value) if isinstance(value, Delay) else value for name, value in chosen.items()}


def _decoded(data: Group) -> dict[str, Any]:
    return {name: _delay(value) if isinstance(value, dict) else value for name, value in data.items()}


def _delay(data: Group) -> Delay:
    made = Delay(**data)
    return replace(made, values=tuple(made.values))


def _own(data: Group) -> dict[str, Any]:
    """Return the values that a plane or a port has of its own."""
    names = [each.name for each in USUAL.parameters]
    return _decoded({name: data[name] for name in names if data.get(name) is not None})


GENERAL = names_of(OcsSpec)
"""The keys of `ocs` that are not parameters of a model."""

USUAL_KEYS = Section((*USUAL.parameters, *keys_of(OcsSpec).values()), is_open=True)
"""The form of `ocs` with the default model; another model declares its own keys."""
