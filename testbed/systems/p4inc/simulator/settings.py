"""The simulations of P4INC-AOI, section VII-C, by name; each parameter is a field. Pure.

Where the paper gives no number, docs/studies/p4inc-aoi.md says which was chosen and why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from testbed.errors import RequestError
from testbed.scheduling.draws import stream
from testbed.scheduling.model import ALL, NEEDED, STEPS, Job, Limits, Pair
from testbed.systems.p4inc.policies import catalogue
from testbed.systems.p4inc.simulator import arrivals, coflows

FOUR = ("noinc-fcfs", "noinc-tw", "inc-fcfs", "inc-tw")
MILP = "milp"
KINDS = ("dml", "mapreduce")
CIRCUITS = ("mesh", "none")


OWN = "own"
Value: TypeAlias = float | str | tuple[float, ...] | tuple[str, ...]
"""The type of a value that a Setting has."""

_PRINTED: Mapping[str, Value] = {"iterations": 1.0, "host_gbps": math.inf, "nominal_gbps": 0.01}
READINGS: Mapping[str, Mapping[str, Value]] = {
    "batch": {},
    "printed": _PRINTED,
    "printed-all": {**_PRINTED, "steps": ALL},
    "printed-needed": {**_PRINTED, "steps": NEEDED},
}
"""`batch`: jobs of many iterations, sent through servers' interfaces. `printed`: one iteration, and
interfaces without a limit, since section VII-C gives none; servers are never free for long. With `-all` and
`-needed`, both FCFS and TW give all steps of bandwidth that fit, or those that a job needs to end within the
slot.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A simulation and its sweep: `values` of the field `sweep`. Rates are in Gb/s; `jobs_per_s` is the
    paper's 20 per TS of 1 s.

    `circuits` are lit before the first slot: `mesh` gives each two units equally many, as the ports allow; or
    none. `update_gbytes_per_s` is the rate of a PS's update (a_j), in bytes of the model; `nominal_gbps` the
    rate by which a placement holds servers; `iterations` the length of a training job; `volume` a factor on a
    coflow's bytes. `steps` says how many steps of bandwidth FCFS and TW give a job (`model.STEPS`), or OWN:
    FCFS all that fit, TW those that it needs in the slot.
    """

    name: str
    about: str
    sweep: str
    values: tuple[float, ...]
    schemes: tuple[str, ...] = FOUR
    kind: str = "dml"
    job_count: int = 1000
    jobs_per_s: float = 20.0
    workers: tuple[int, ...] = (2, 4, 8, 16)
    megabytes: tuple[float, ...] = (102.0, 548.0)
    iterations: float = 100.0
    volume: float = 1.0
    update_gbytes_per_s: float = 25.0
    nominal_gbps: float = 10.0
    units: int = 64
    servers: int = 64
    ports: int = 24
    port_gbps: float = 40.0
    inc: int = 4
    switch_gbps: float = 2 * 64 * 40.0
    host_gbps: float = 40.0
    ps_gbps: float = math.inf
    slot_s: float = 1.0
    reconfiguration_s: float = 0.02
    step_gbps: float = 10.0
    circuits: str = "mesh"
    steps: str = OWN

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", "float"):
                least = 0 if field.name in ("inc", "reconfiguration_s", "ports") else None
                self._number(field.name, value, least, field.type == "int")
        for name in ("values", "workers", "megabytes", "schemes"):
            given = getattr(self, name)
            if not given:
                raise RequestError(f"{self.name}: {name} is empty; at least one value is accepted")
            if name in ("values", "schemes") and len(set(given)) < len(given):
                raise RequestError(
                    f"{self.name}: {name}: {', '.join(map(str, given))}; each once is accepted"
                )
        for count in self.workers:
            self._number("workers", count, None, True)
        for name, accepted in (("kind", KINDS), ("circuits", CIRCUITS), ("steps", (OWN, *STEPS))):
            if getattr(self, name) not in accepted:
                raise RequestError(
                    f"{self.name}: {name} {getattr(self, name)!r}; accepted: {', '.join(accepted)}"
                )
        for scheme in self.schemes:
            if scheme not in (MILP, *catalogue.NAMES):
                raise RequestError(
                    f"{self.name}: schemes: no {scheme!r}; accepted: {MILP}, {', '.join(catalogue.NAMES)}"
                )
        if len(self.megabytes) != 2 or not 0 < self.megabytes[0] <= self.megabytes[1] < math.inf:
            raise RequestError(
                f"{self.name}: megabytes {self.megabytes}; a smallest and a largest above 0 are accepted"
            )
        if self.reconfiguration_s > self.slot_s:
            raise RequestError(
                f"{self.name}: reconfiguration_s {self.reconfiguration_s:g}; at most slot_s, "
                f"{self.slot_s:g}, is accepted"
            )
        if self.kind == "dml" and max(self.workers) > self.units * self.servers:
            room = self.units * self.servers
            raise RequestError(
                f"{self.name}: workers {max(self.workers)}; at most the {room} servers are accepted"
            )

    def _number(self, name: str, value: float, least: float | None, whole: bool) -> None:
        infinite = (
            name in ("switch_gbps", "host_gbps", "ps_gbps", "update_gbytes_per_s") and value == math.inf
        )
        low = value < 0 if least == 0 else value <= 0
        if low or not (math.isfinite(value) or infinite) or (whole and value != int(value)):
            sort = "a whole number" if whole else "a number"
            raise RequestError(
                f"{self.name}: {name} {value:g}; {sort} {'of at least 0' if least == 0 else 'above 0'} is "
                f"accepted"
            )

    @property
    def limits(self) -> Limits:
        return Limits.uniform(
            self.units,
            self.ports,
            self.inc,
            self.port_gbps,
            self.switch_gbps,
            host_gbps=self.host_gbps,
            ps_gbps=self.ps_gbps,
            slot_s=self.slot_s,
            reconfiguration_s=self.reconfiguration_s,
            step_gbps=self.step_gbps,
        )

    @property
    def initial(self) -> dict[Pair, int]:
        """The circuits before the first slot; with more units than ports, a mesh has none."""
        return self.limits.full_mesh() if self.circuits == "mesh" else {}

    def jobs(self, seed: int, trace: Sequence[coflows.Coflow] = (), **overrides: Any) -> tuple[Job, ...]:
        """Draw the jobs; the same seed and fields give the same jobs. MapReduce jobs are drawn from
        `trace`.
        """
        if overrides:
            return self.having(overrides).jobs(seed, trace)
        rates = {"update_gbytes_per_s": self.update_gbytes_per_s, "nominal_gbps": self.nominal_gbps}
        if self.kind == "dml":
            least, most = self.megabytes
            demands = arrivals.dml_demands(
                self.job_count,
                seed,
                workers=self.workers,
                megabytes=(least, most),
                iterations=self.iterations,
                **rates,
            )
        else:
            if not trace:
                raise RequestError(
                    f"{self.name}: it draws its jobs from a coflow trace; --trace FILE is accepted"
                )
            demands = coflows.demands(
                trace, self.job_count, stream(seed, "trace"), volume=self.volume, **rates
            )
            room, most = self.units * self.servers, max(demand.workers for demand in demands)
            if most > room:
                raise RequestError(
                    f"{self.name}: a job of {most} mappers; at most the {room} servers are accepted"
                )
        return arrivals.jobs_of(
            demands,
            seed,
            jobs_per_s=self.jobs_per_s,
            slot_s=self.slot_s,
            units=self.units,
            servers=self.servers,
        )

    def having(self, overrides: Mapping[str, Value]) -> Setting:
        """Return this setting with other values. RequestError for an unknown field or an invalid value."""
        fields = {field.name for field in dataclasses.fields(self)} - {"name", "about", "sweep"}
        for name in overrides:
            if name not in fields:
                raise RequestError(f"{self.name}: no field {name!r}; accepted: {', '.join(sorted(fields))}")
        return dataclasses.replace(self, **overrides)  # type: ignore[arg-type]  # each field has a type of its own

    def reading(self, words: Sequence[str]) -> Setting:
        """Return this setting with fields from words NAME=VALUE, where lists have commas. For the swept
        field, VALUE is the list of its values.
        """
        overrides: dict[str, Value] = {}
        types = {field.name: str(field.type) for field in dataclasses.fields(self)}
        for word in words:
            name, equals, text = word.partition("=")
            if not equals or name not in types:
                accepted = ", ".join(sorted(set(types) - {"name", "about", "sweep"}))
                raise RequestError(f"--set {word}: NAME=VALUE is accepted, NAME one of {accepted}")
            if name == self.sweep:
                name = "values"
            overrides[name] = _read(word, types[name], text)
        return self.having(overrides)

    def swept(self) -> tuple[tuple[float, Setting], ...]:
        """Return the values of the sweep, each with its setting."""
        whole = {field.name for field in dataclasses.fields(self) if field.type == "int"}
        settings = []
        for value in self.values:
            given = int(value) if self.sweep in whole and float(value).is_integer() else value
            settings.append((value, self.having({self.sweep: given})))
        return tuple(settings)


def _read(word: str, type_: str, text: str) -> Any:
    def read_part(part: str, number: type) -> Any:
        try:
            return number(part)
        except ValueError as error:
            sort = {int: "a whole number", float: "a number"}[number]
            raise RequestError(f"--set {word}: {part!r}; {sort} is accepted") from error

    if type_.startswith("tuple"):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        sort: type = str if "str" in type_ else int if "int" in type_ else float
        return tuple(part if sort is str else read_part(part, sort) for part in parts)
    return text if type_ == "str" else read_part(text, int if type_ == "int" else float)


_DML = Setting("fig8", "numbers of training jobs", "job_count", (800, 1000, 1200, 1400))

SETTINGS: Mapping[str, Setting] = {
    "table1": Setting(
        "table1",
        "small scale, against the optimum",
        "job_count",
        (40, 50, 60, 80, 100),
        schemes=(MILP, "inc-fcfs", "inc-tw", "inc-tw-norecon", "inc-tw+"),
        units=8,
        iterations=30.0,
        slot_s=0.25,
    ),
    "fig8": _DML,
    "fig9": dataclasses.replace(
        _DML, name="fig9", about="numbers of MapReduce jobs", values=(200, 300, 400, 500), kind="mapreduce"
    ),
    "fig10": dataclasses.replace(
        _DML, name="fig10", about="numbers of units", sweep="units", values=(40, 48, 56, 64)
    ),
    "fig11": dataclasses.replace(
        _DML, name="fig11", about="INC capacities", sweep="inc", values=(2, 4, 8, 16)
    ),
    "fig12": dataclasses.replace(
        _DML, name="fig12", about="lengths of a time slot", sweep="slot_s", values=(0.25, 0.5, 1.0, 2.0)
    ),
}
