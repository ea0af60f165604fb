"""Convert the values of a configuration's keys, by their declared kinds: from a file's words, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from testbed.errors import RequestError
from testbed.keys import (
    Duration,
    HostName,
    Kind,
    Name,
    Names,
    Parameter,
    Percentage,
    Plain,
    PowerOfTwo,
    ProgramFiles,
    Quantity,
    Rate,
    ShellLine,
    Time,
    Whole,
    WholeOrWord,
    Word,
    YesNo,
    keys_of,
    names_of,
)
from testbed.optics.delays import MOST_DELAY_MS, Delay
from testbed.topology.fields import MOST_NAME, is_number, listed, mapping, read_lines, shown, whole

MIN_MBPS, MAX_MBPS = 1.0, 20000.0
UNSHAPED = "unshaped"
AUTO_SCALE = 0  # a scale that the machine's speed decides, until `testbed up` has measured it
MOST_COMMAND = 4096  # characters
HOST_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
MOST_VALUES = 10_000
_TRACES = {"trace_ms": 1.0, "trace_us": 1e-3}  # key -> the unit of its file's numbers, in ms
_ACCEPTED = (
    "milliseconds from 0 to 60000, {uniform: [low, high]}, {normal: [mean, deviation]}, {lognormal: [mean, "
    "deviation]}, {values: [...]}, {trace_ms: FILE} or {trace_us: FILE} is accepted"
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """The context of reading: the folder of the files that words name (None: they may name none), and the
    scale that divides rates.
    """

    folder: Path | None = None
    scale: int = 1


def read_into(default: T, raw: Any, path: str, reading: Reading) -> T:
    """Return the object with the values of a mapping, by its class's keys. Raises RequestError for the first
    fault.
    """
    holder: Any = type(default)
    data = mapping(raw, path, names_of(holder))
    return replace(default, **read_said(keys_of(holder), data, path, reading))  # type: ignore[type-var]


def plain_values(holder: type, data: Mapping[str, Any], path: str, reading: Reading) -> dict[str, Any]:
    """Read the values of a class's fields with keys that depend on no others; missing ones get their
    defaults.
    """
    keys = _plain_keys(holder)
    return {name: each.default for name, each in keys.items()} | read_said(keys, data, path, reading)


@cache
def _plain_keys(holder: type) -> Mapping[str, Parameter]:
    held, plain = {each.name for each in fields(holder)}, get_args(Plain)
    return {
        name: each for name, each in keys_of(holder).items() if name in held and isinstance(each.kind, plain)
    }


def read_said(
    keys: Mapping[str, Parameter], data: Mapping[str, Any], path: str, reading: Reading
) -> dict[str, Any]:
    """Read the values of the keys that `data` has, by their names here."""
    return {name: read_value(each, data, path, reading) for name, each in keys.items() if each.name in data}


def read_value(parameter: Parameter, data: Mapping[str, Any], path: str, reading: Reading) -> Any:
    """Read a key's value from `data`, which is below `path`. Raises RequestError with the accepted values."""
    raw = data[parameter.name]
    at = f"{path}.{parameter.name}" if path else parameter.name
    match parameter.kind:
        case Duration():
            return _delay(raw, at, reading.folder)
        case Quantity(low, high, noun):
            if not is_number(raw) or not low <= raw <= high:
                raise RequestError(f"{at}: {shown(raw)}; {noun} from {low:g} to {high:g} is accepted")
            return float(raw)
        case Whole(low, high):
            return whole(raw, at, low, high)
        case WholeOrWord(low, high, word, stands_for):
            if raw == word:
                return stands_for
            return whole(raw, at, low, high, f" or the word {word}")
        case PowerOfTwo(low, high):
            if not isinstance(raw, int) or raw.bit_count() != 1 or not low <= raw <= high:
                raise RequestError(f"{at}: {shown(raw)}; a power of two from {low} to {high} is accepted")
            return raw
        case Word(accepted):
            if raw not in accepted:
                raise RequestError(f"{at}: {shown(raw)}; {listed(accepted)} are accepted")
            return str(raw)
        case YesNo():
            if not isinstance(raw, bool):
                raise RequestError(f"{at}: {shown(raw)}; true or false is accepted")
            return raw
        case Rate():
            return rate_mbps(raw, at, reading.scale)
        case Name():
            return _name(raw, at)
        case Names(noun):
            if not isinstance(raw, list) or not all(isinstance(each, str) for each in raw):
                raise RequestError(f"{at}: {shown(raw)}; a list of names of {noun} is accepted")
            return tuple(raw)
        case ProgramFiles():
            return _programs(raw, at, reading.folder)
        case Time() | Percentage() as form:
            if (value := form.read(raw)) is None:
                raise RequestError(f"{at}: {shown(raw)}; {form.ACCEPTED}")
            return value
        case HostName():
            if not isinstance(raw, str) or not HOST_NAME.fullmatch(raw):
                raise RequestError(
                    f"{at}: {shown(raw)}; up to 63 letters, digits and hyphens, with a letter first, are "
                    f"accepted"
                )
            return raw
        case ShellLine():
            if not isinstance(raw, str) or not _is_command(raw):
                raise RequestError(
                    f"{at}: {shown(raw)}; a command line of up to {MOST_COMMAND} characters is accepted"
                )
            return raw
        case form:
            raise TypeError(f"{at}: {form} is read by the rules between its keys")


def _is_command(text: str) -> bool:
    """Return whether a text can be a process's argument, and says something."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return bool(text.strip()) and len(text) <= MOST_COMMAND and "\0" not in text


def section_said(holder: object, **instead: Any) -> dict[str, Any]:
    """Return a file's words for an object with declared keys: each field's value, or its words in `instead`.
    Fields without a value are omitted.
    """
    section: type = type(holder)
    words = {}
    for name, each in keys_of(section).items():
        value = instead[name] if name in instead else value_said(getattr(holder, name), each.kind)
        if value is not None:
            words[each.name] = value
    return words


def rate_said(rate_mbps: float | None) -> float | str:
    """Return a declared rate in a file's words."""
    return UNSHAPED if rate_mbps is None else rate_mbps


def value_said(value: Any, kind: Kind | None = None) -> Any:
    """Return a value, of a key of this kind or of an optical model's parameter, in a file's words."""
    if isinstance(kind, Rate):
        return rate_said(value)
    if isinstance(kind, WholeOrWord) and value == kind.stands_for:
        return kind.word
    if isinstance(kind, Names):  # an empty list differs from no list
        return None if value is None else list(value)
    if isinstance(kind, Time):
        return Time.written(value) if value else None
    if isinstance(kind, Percentage):
        return Percentage.written(value) if value else None
    if isinstance(value, Delay):
        if value.kind == "constant":
            return value.a
        return {value.kind: list(value.values) if value.kind == "values" else [value.a, value.b]}
    if is_dataclass(value):
        return section_said(value)
    return (list(value) or None) if isinstance(value, tuple) else value


def _name(raw: Any, at: str) -> str:
    if is_number(raw):
        raise RequestError(f"{at}: {raw} is a number; in quotes it is a name")
    if not isinstance(raw, str) or not 1 <= len(raw) <= MOST_NAME or not raw.isprintable():
        raise RequestError(f"{at}: {shown(raw)!r}; a line of 1 to {MOST_NAME} characters is accepted")
    return raw


def rate_mbps(raw: Any, at: str, scale: int) -> float | None:
    """Check a declared rate; None: unshaped. With AUTO_SCALE, testbed.topology.auto_scale checks whether it
    can be emulated.
    """
    if raw == UNSHAPED:
        return None
    if not is_number(raw) or raw <= 0:
        raise RequestError(f"{at}: {shown(raw)}; a rate in Mb/s or the word unshaped is accepted")
    if scale != AUTO_SCALE and not MIN_MBPS <= raw / scale <= MAX_MBPS:
        raise RequestError(
            f"{at}: {shown(raw)} at scale {scale} is {raw / scale:g} Mb/s; from {MIN_MBPS:g} to "
            f"{MAX_MBPS:g} Mb/s can be emulated"
        )
    return float(raw)


def _programs(raw: Any, at: str, folder: Path | None) -> tuple[str, ...]:
    """Check the named data-plane programs, and return them with absolute paths."""
    if not isinstance(raw, list) or not all(isinstance(each, str) for each in raw):
        raise RequestError(f"{at}: {shown(raw)}; a list of FILE.py:CLASS is accepted")
    named = []
    for each in raw:
        file, _, class_name = each.rpartition(":")
        path = (folder or Path()) / file
        if not file.endswith(".py") or not class_name.isidentifier():
            raise RequestError(f"{at}: {each}; FILE.py:CLASS is accepted")
        try:
            is_there = path.is_file() and (folder is not None or path.is_absolute())
        except OSError as error:  # a folder on the way may not be entered
            raise RequestError(f"{at}: {each}: {path}: {error.strerror}") from error
        if not is_there:
            raise RequestError(f"{at}: {each}: {path} is no file")
        named.append(f"{path.resolve()}:{class_name}")
    return tuple(named)


def _delay(raw: Any, key: str, folder: Path | None) -> Delay:
    """Read a duration."""
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
    """Read the durations in a file, one a line, and return them in ms; empty lines, and text after a #, are
    ignored.
    """
    if folder is None:
        raise RequestError(f"{key}: trace {name}; a file is accepted in a YAML file, {{values: [...]}} here")
    path, values = folder / name, []
    for number, line in enumerate(read_lines(path), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            value_ms = float(text) * unit_ms
        except ValueError:
            value_ms = math.nan
        if not 0 <= value_ms <= MOST_DELAY_MS:
            raise RequestError(
                f"{key}: {path} line {number}: {shown(text)}; a number from 0 to "
                f"{MOST_DELAY_MS / unit_ms:.0f} is accepted"
            )
        values.append(value_ms)
        if len(values) > MOST_VALUES:
            break
    if not 1 <= len(values) <= MOST_VALUES:
        many = f"more than {MOST_VALUES}" if values else "no"
        raise RequestError(f"{key}: {path} has {many} values; 1 to {MOST_VALUES} are accepted")
    return tuple(values)
