"""The options of a job, common to its command, a jobs file, the library and the daemon. Each is a field of
`JobOptions`, from which come the command's parser, the keys of a jobs file, the library's keyword arguments,
and their checks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from testbed.aggregation.packets import (
    LEAST_AGE_OUT_MS,
    LEAST_LEAVE_AFTER,
    MOST_AGE_OUT_MS,
    MOST_LEAVE_AFTER,
    MOST_WINDOW,
    USUAL_WINDOW,
    Packets,
)
from testbed.errors import RequestError
from testbed.topology.fields import integer, is_number, shown
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
    words: tuple[str, ...] = ()  # all accepted values, if they are few: a shell completes them

    @property
    def line(self) -> str:
        """The option's line in the command's help."""
        return f"{self.help} ({self.usual})" if self.usual else self.help


def _count(low: int, high: int) -> Read:
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


def _age_out_ms(raw: Any, key: str, path: str) -> float:
    if is_number(raw) and (raw == 0 or LEAST_AGE_OUT_MS <= raw <= MOST_AGE_OUT_MS):
        return float(raw)
    raise RequestError(
        f"{path}{key}: {shown(raw)}; {LEAST_AGE_OUT_MS:g} to {MOST_AGE_OUT_MS:g} ms are accepted, and 0: as "
        "long as it takes"
    )


def _slow_workers(raw: Any, key: str, path: str) -> str:
    SlowWorkers.parse(raw, path)
    return str(raw)


def _as(read: Read, help: str, **more: Any) -> dict[str, Option]:
    return {"option": Option(read, help, **more)}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options, each with its default. None stands for a default that depends: `lanes` as many as fit,
    `recovery` by the window, `age_out_ms` as the job's system says, `window` as its program does,
    `leave_after` never.
    """

    restarts: int = field(
        default=0,
        metadata=_as(
            _restarts,
            "when a worker dies, start the whole job again, at most N times",
            usual="0",
            metavar="N",
            typed=int,
        ),
    )
    lanes: int | None = field(
        default=None,
        metadata=_as(
            _count(MIN_LANES, lanes_for(MAX_MTU)),
            "put N gradients in a packet, at least 64",
            usual="what the MTU holds",
            metavar="N",
            typed=int,
        ),
    )
    recovery: Recovery | None = field(
        default=None,
        metadata=_as(
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
    age_out_ms: float | None = field(
        default=None,
        metadata=_as(
            _age_out_ms,
            "send a sum without workers that are later than MS milliseconds, if the system can; 0: never",
            usual="the system's own",
            metavar="MS",
            typed=float,
            flags=("--age-out",),
        ),
    )
    window: int | None = field(
        default=None,
        metadata=_as(
            _count(1, MOST_WINDOW),
            "let a worker have at most N packets under way, if the system sums by block records",
            usual=str(USUAL_WINDOW),
            metavar="N",
            typed=int,
        ),
    )
    leave_after: int | None = field(
        default=None,
        metadata=_as(
            _count(LEAST_LEAVE_AFTER, MOST_LEAVE_AFTER),
            "continue without a worker that sent nothing in N checks, each ten times the age-out after the "
            "last, until it sends again; only if the system sums by block records",
            usual="never",
            metavar="N",
            typed=int,
        ),
    )
    strict_finite: bool = field(
        default=False,
        metadata=_as(
            _flag,
            "raise an error on all workers if gradients have a NaN or an infinity; otherwise gloo sums them",
            for_worker=True,
            page="backend.md#gradients-that-are-not-finite",
        ),
    )
    error_feedback: bool = field(
        default=False,
        metadata=_as(
            _flag,
            "add the rounding error of each gradient of a DDP model to the next gradient",
            for_worker=True,
            page="training.md#precision-beside-loud-neighbours",
        ),
    )
    fine_sums: bool = field(
        default=False,
        metadata=_as(
            _flag,
            "sum the rounding errors of DDP's gradients, too, which doubles the bytes",
            not_with="error_feedback",
            for_worker=True,
            page="training.md#precision-beside-loud-neighbours",
        ),
    )
    init_group: bool = field(
        default=False,
        metadata=_as(
            _flag,
            "make the process group before the script begins, for libraries that would make one of gloo",
            for_worker=True,
            page="training.md#libraries-that-choose-gloo",
        ),
    )
    folder_per_worker: bool = field(
        default=False,
        metadata=_as(
            _flag,
            "start each worker in a folder of its own in the working folder: worker-0, worker-1, ...",
            page="training.md#a-folder-for-each-worker",
        ),
    )
    stragglers: str | None = field(
        default=None,
        metadata=_as(
            _slow_workers,
            "delay workers on purpose: at three points of an iteration, with probability P, for 0.5 to 2 "
            "iteration times; further values are iteration=TIME and workers=each|one",
            metavar="p=P,seed=N",
            typed=str,
            for_worker=True,
            page="training.md#slow-workers",
        ),
    )
    module: bool = field(
        default=False,
        metadata=_as(
            _flag, "SCRIPT is the name of a module, which runs as by python -m", flags=("-m", "--module")
        ),
    )

    @classmethod
    def parse(cls, data: Mapping[str, Any], path: str = "", typed: bool = False) -> JobOptions:
        """Read the options from `data`, by name; None is accepted where it is the default. Raises
        RequestError for the first fault, with `path` before the option's name, or, for `typed` options,
        before its flag.
        """
        values = {}
        for name, option in OPTIONS.items():
            raw = data.get(name, DEFAULTS[name])
            if raw is not None or DEFAULTS[name] is not None:
                key = flags_of(name)[-1].removeprefix("--") if typed else name
                values[name] = option.read(raw, key, path)
        for name, option in OPTIONS.items():
            if option.not_with and values.get(name) and values.get(option.not_with):
                raise RequestError(f"{path}{option.not_with} and {name}: one of them is accepted")
        return cls(**values)

    def but(self, values: Mapping[str, Any]) -> JobOptions:
        """Replace some values, by name. Raises RequestError for a value that is not accepted."""
        _check_restarts(values.get("restarts"))
        return self.parse({**self.as_json(), **values})

    def as_json(self) -> dict[str, Any]:
        """Return the values by name, as `parse` reads them."""
        return {name: getattr(self, name) for name in OPTIONS}

    def for_worker(self) -> WorkerOptions:
        """Return the options that a worker's process gets."""
        values = self.as_json()
        return WorkerOptions(**{name: values[name] for name, option in OPTIONS.items() if option.for_worker})

    def words(self) -> list[str]:
        """Return the words of the command for these options."""
        words = []
        for name, value in self.as_json().items():
            if value != DEFAULTS[name]:
                text = f"{value:g}" if isinstance(value, float) else str(value)
                words += [flags_of(name)[0], *([] if value is True else [text])]
        return words

    @property
    def slow_workers(self) -> SlowWorkers | None:
        """The pattern of delays injected into the job's workers; None: no delays."""
        return None if self.stragglers is None else SlowWorkers.parse(self.stragglers)

    @property
    def packets(self) -> Packets:
        """The job's choices for its packets."""
        recovery = self.recovery or Recovery.WINDOW
        return Packets(self.lanes, recovery, self.age_out_ms, self.window, self.leave_after)


OPTIONS: Mapping[str, Option] = {each.name: each.metadata["option"] for each in fields(JobOptions)}
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(JobOptions)}
AS_USUAL = JobOptions()


def flags_of(name: str) -> tuple[str, ...]:
    """Return an option's flags on the command line."""
    return OPTIONS[name].flags or (f"--{name.replace('_', '-')}",)


def _words(words: tuple[str, ...], **_: Any) -> tuple[str, ...]:
    return words


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of a command."""
    beside: dict[str, Any] = {}  # groups of two exclusive options, by the first
    for name, option in OPTIONS.items():
        rivals = [other for other, each in OPTIONS.items() if each.not_with == name]
        target: Any = parser
        if rivals:
            target = beside[name] = parser.add_mutually_exclusive_group()
        elif option.not_with:
            target = beside[option.not_with]
        if option.typed is None:
            target.add_argument(*flags_of(name), dest=name, action="store_true", help=option.line)
        else:
            action = target.add_argument(
                *flags_of(name),
                dest=name,
                type=option.typed,
                default=DEFAULTS[name],
                metavar=option.metavar,
                help=option.line,
            )
            if option.words:
                action.completer = partial(_words, option.words)
