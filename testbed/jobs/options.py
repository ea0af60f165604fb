"""The options of a job, common to its command, a jobs file, the library and the daemon. Each is declared at a
field: those of all jobs in `CommonOptions`, those of a data-plane program in the module `options` of its
system's folder. One class has them all (testbed/systems/job_options.py); testbed/jobs/option_table.py makes
the command's parser of it, the keys of a jobs file, and the library's keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from testbed.aggregation.packets import Packets, ProgramChoice
from testbed.errors import RequestError
from testbed.plugins.user_class import is_users
from testbed.topology.fields import integer, shown
from testbed.wire import circuit_policies
from testbed.wire.recovery import Recovery
from testbed.wire.settings import WorkerOptions
from testbed.wire.spec import MAX_MTU, MIN_LANES, lanes_for
from testbed.wire.stragglers import SlowWorkers

MOST_RESTARTS = 100

Read = Callable[[Any, str, str], Any]
"""Reads a value (raw value, key, prefix of the key in errors). RequestError says what is accepted."""


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option: how its value is read, its line of help, and how it is typed."""

    read: Read
    help: str
    metavar: str | None = None
    typed: Callable[[str], Any] | None = None  # the parser's type of its value; None: it is a flag
    flags: tuple[str, ...] = ()  # on the command line; (): the field's name with hyphens
    not_with: str | None = None  # another option that excludes it
    for_worker: bool = False  # whether worker processes get it
    usual: str = ""  # the default, in words
    page: str = ""  # its page in docs/
    after: str | None = None  # a program's option: the one that it follows in tables and in the help
    elsewhere: str = ""  # a program's option: why others refuse it (ProgramChoice); empty: all jobs have it
    words: tuple[str, ...] = ()  # all accepted values, if they are few: a shell completes them

    @property
    def line(self) -> str:
        """The option's line in the command's help."""
        return f"{self.help} ({self.usual})" if self.usual else self.help

    def flags_of(self, name: str) -> tuple[str, ...]:
        """Return its flags on the command line; `name` is its field's."""
        return self.flags or (f"--{name.replace('_', '-')}",)


def count(low: int, high: int) -> Read:
    """Return how a whole number from `low` to `high` is read."""
    return lambda raw, key, path: integer({key: raw}, key, 0, low=low, high=high, path=path)


def _restarts(raw: Any, key: str, path: str) -> int:
    if path == "--":
        _check_restarts(raw, path)
    return integer({key: raw}, key, 0, low=0, high=MOST_RESTARTS, path=path)


def _check_restarts(raw: Any, path: str = "") -> None:
    """Raise RequestError for a number of restarts below 0 or above MOST_RESTARTS."""
    if type(raw) is int and not 0 <= raw <= MOST_RESTARTS:
        raise RequestError(f"{path}restarts {raw}: 0 to {MOST_RESTARTS} are accepted")


def _flag(raw: Any, key: str, path: str) -> bool:
    if not isinstance(raw, bool):
        raise RequestError(f"{path}{key}: {shown(raw)}; true and false are accepted")
    return raw


def _recovery(raw: Any, key: str, path: str) -> Recovery:
    try:
        return Recovery(raw)
    except ValueError:
        *first, last = Recovery
        accepted = f"{', '.join(first)} and {last}"
        raise RequestError(f"{path}{key}: {shown(raw)}; {accepted} are accepted") from None


def _circuit_policy(raw: Any, key: str, path: str) -> str:
    if isinstance(raw, str) and (raw in circuit_policies.NAMES or is_users(raw)):
        return raw
    names = ", ".join(circuit_policies.NAMES)
    raise RequestError(f"{path}{key}: {shown(raw)}; {names}, FILE.py:CLASS and MODULE:CLASS are accepted")


def _slow_workers(raw: Any, key: str, path: str) -> str:
    SlowWorkers.parse(raw, path)
    return str(raw)


def declare(read: Read, help: str, **more: Any) -> dict[str, Option]:
    """Declare an option, as the metadata of its field."""
    return {"option": Option(read, help, **more)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The options of any job, each with its default. None stands for a default that depends: `lanes` as many
    as fit, `recovery` by the window.
    """

    restarts: int = field(
        default=0,
        metadata=declare(
            _restarts,
            "when a worker dies, start the whole job again, at most N times",
            usual="0",
            metavar="N",
            typed=int,
        ),
    )
    lanes: int | None = field(
        default=None,
        metadata=declare(
            count(MIN_LANES, lanes_for(MAX_MTU)),
            "put N gradients in a packet, at least 64",
            usual="what the MTU holds",
            metavar="N",
            typed=int,
        ),
    )
    recovery: Recovery | None = field(
        default=None,
        metadata=declare(
            _recovery,
            "how workers find lost packets and send them again: by a window, by asking which are lost "
            "(integrity), or not at all (none)",
            usual="window",
            words=tuple(Recovery),
            page="training.md",
            metavar="HOW",
            typed=str,
        ),
    )
    strict_finite: bool = field(
        default=False,
        metadata=declare(
            _flag,
            "raise an error on all workers if gradients have a NaN or an infinity; otherwise gloo sums them",
            for_worker=True,
            page="backend.md#gradients-that-are-not-finite",
        ),
    )
    error_feedback: bool = field(
        default=False,
        metadata=declare(
            _flag,
            "add the rounding error of each gradient of a DDP model to the next gradient",
            for_worker=True,
            page="training.md#precision-beside-loud-neighbours",
        ),
    )
    fine_sums: bool = field(
        default=False,
        metadata=declare(
            _flag,
            "sum the rounding errors of DDP's gradients, too, which doubles the bytes",
            not_with="error_feedback",
            for_worker=True,
            page="training.md#precision-beside-loud-neighbours",
        ),
    )
    init_group: bool = field(
        default=False,
        metadata=declare(
            _flag,
            "make the process group before the script begins, for libraries that would make one of gloo",
            for_worker=True,
            page="training.md#libraries-that-choose-gloo",
        ),
    )
    folder_per_worker: bool = field(
        default=False,
        metadata=declare(
            _flag,
            "start each worker in a folder of its own in the working folder: worker-0, worker-1, ...",
            page="training.md#a-folder-for-each-worker",
        ),
    )
    stragglers: str | None = field(
        default=None,
        metadata=declare(
            _slow_workers,
            "delay workers on purpose: at three points of an iteration, with probability P, for 0.5 to 2 "
            "iteration times; further values are iteration=TIME and workers=each|one",
            metavar="p=P,seed=N",
            typed=str,
            for_worker=True,
            page="training.md#slow-workers",
        ),
    )
    circuits: str = field(
        default=circuit_policies.STATIC,
        metadata=declare(
            _circuit_policy,
            "the circuits of the script's collectives: those that are lit (static), asked for when a "
            "collective starts (on-demand) or when the one before it ends (ahead), or by a class of yours",
            usual="static",
            words=circuit_policies.NAMES,
            page="scheduling.md#circuits-for-a-jobs-collectives",
            metavar="HOW",
            typed=str,
            for_worker=True,
        ),
    )
    module: bool = field(
        default=False,
        metadata=declare(
            _flag, "SCRIPT is the name of a module, which runs as by python -m", flags=("-m", "--module")
        ),
    )

    @classmethod
    def parse(cls, data: Mapping[str, Any], path: str = "", typed: bool = False) -> Self:
        """Read the options from `data`, by name; None is accepted where it is the default. Raises
        RequestError for the first fault, with `path` before the option's name, or, for `typed` options,
        before its flag.
        """
        values, declared, defaults = {}, options_of(cls), cls()
        for name, option in declared.items():
            default = getattr(defaults, name)
            raw = data.get(name, default)
            if raw is not None or default is not None:
                key = option.flags_of(name)[-1].removeprefix("--") if typed else name
                values[name] = option.read(raw, key, path)
        for name, option in declared.items():
            if option.not_with and values.get(name) and values.get(option.not_with):
                raise RequestError(f"{path}{option.not_with} and {name}: one of them is accepted")
        return cls(**values)

    def but(self, values: Mapping[str, Any]) -> Self:
        """Replace some values, by name. Raises RequestError for a value that is not accepted."""
        _check_restarts(values.get("restarts"))
        return self.parse({**self.as_json(), **values})

    def as_json(self) -> dict[str, Any]:
        """Return the values by name, as `parse` reads them."""
        return {name: getattr(self, name) for name in options_of(type(self))}

    def for_worker(self) -> WorkerOptions:
        """Return the options that a worker's process gets."""
        declared = options_of(type(self)).items()
        return WorkerOptions(**{name: getattr(self, name) for name, option in declared if option.for_worker})

    def words(self) -> list[str]:
        """Return the words of the command for these options."""
        words, defaults = [], type(self)()
        for name, option in options_of(type(self)).items():
            value = getattr(self, name)
            if value != getattr(defaults, name):
                text = f"{value:g}" if isinstance(value, float) else str(value)
                words += [option.flags_of(name)[0], *([] if value is True else [text])]
        return words

    @property
    def slow_workers(self) -> SlowWorkers | None:
        """The pattern of delays injected into the job's workers; None: no delays."""
        return None if self.stragglers is None else SlowWorkers.parse(self.stragglers)

    @property
    def packets(self) -> Packets:
        """The job's choices for its packets."""
        choices = tuple(
            ProgramChoice(name, value, option.flags_of(name)[0], option.elsewhere)
            for name, option in options_of(type(self)).items()
            if option.elsewhere and (value := getattr(self, name)) is not None
        )
        return Packets(self.lanes, self.recovery or Recovery.WINDOW, choices)


_OPTIONS: dict[type[CommonOptions], Mapping[str, Option]] = {}


def options_of(kind: type[CommonOptions]) -> Mapping[str, Option]:
    """Return the declarations of a class's options by name, in the order of tables."""
    if kind not in _OPTIONS:
        declared: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(kind)}
        names = [name for name, option in declared.items() if option.after is None]
        for name, option in declared.items():
            if option.after is not None:
                names.insert(names.index(option.after) + 1, name)
        _OPTIONS[kind] = {name: declared[name] for name in names}
    return _OPTIONS[kind]
