"""Read and write YAML by the core schema of YAML 1.2 (section 10.3), in which `010` is ten, `4e4` is a
number, and `25:00`, `yes`, `off` and dates are texts. PyYAML's own rules are those of YAML 1.1.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import RequestError

_BYTE_ORDER_MARK = "\ufeff"
_TAG = "tag:yaml.org,2002:"
_CORE: tuple[
    tuple[str, str, list[str]], ...
] = (  # of a plain scalar: its type, its pattern, its possible first characters
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
    ("merge", r"<<", ["<"]),
)
_NUMPY_SCALAR = re.compile(rf"{_TAG}python/object/apply:numpy\.(?:_core|core)\.multiarray\.scalar")
_STRUCT = {"b1": "?", "f2": "e", "f4": "f", "f8": "d"}


class _Loader(yaml.SafeLoader):
    """Loads the core schema, and refuses a repeated key, of which PyYAML would silently use the later value.
    Reads NumPy's numbers in the form that yaml.dump writes.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 PyYAML's attribute; PyYAML's own resolvers are 1.1's

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def whole_number(self, node: yaml.ScalarNode) -> int:
        digits = node.value
        return int(digits, {"0o": 8, "0x": 16}.get(digits[:2], 10))

    def unknown(self, node: yaml.Node) -> Any:
        """Read a NumPy number; refuse any other tag with ConstructorError."""
        if _NUMPY_SCALAR.fullmatch(node.tag) and (number := _numpy_number(node)) is not None:
            return number
        kind = node.tag.removeprefix(_TAG)
        raise yaml.constructor.ConstructorError(
            problem=f"a value of the type {kind}; numbers, texts, true, false, lists and keys are accepted",
            problem_mark=node.start_mark,
        )


class _Dumper(yaml.SafeDumper):
    """Quotes texts that the core schema would read as another type."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 as above


for _kind, _looks, _begins in _CORE:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_looks})$"), _begins)
_Loader.add_constructor(f"{_TAG}int", _Loader.whole_number)
_Loader.add_constructor(None, _Loader.unknown)  # for all other tags


def read_yaml(path: Path) -> Any:
    """Read the content of a file, or of a pipe that has a writer. Raises RequestError if it is missing, empty
    (a pipe), no YAML, or has a key twice.
    """
    return _parsed(lambda: _content(path), str(path))


def read_yaml_of_stdin() -> Any:
    """Read the content of the standard input, to its end. Raises RequestError likewise."""
    return _parsed(sys.stdin.read, "standard input")


def _parsed(content: Callable[[], str], path: str) -> Any:
    try:
        return yaml.load(content().removeprefix(_BYTE_ORDER_MARK), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RequestError(f"read {path}: {reason}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        raise RequestError(f"{path}{where}: not YAML: {getattr(error, 'problem', None) or error}") from error


def written(data: Any, in_a_line: bool = False) -> str:
    """Format data as YAML that `read_yaml` reads back. Raises yaml.YAMLError for data that YAML cannot
    express.
    """
    if in_a_line:
        return yaml.dump(plain(data), Dumper=_Dumper, default_flow_style=True, width=sys.maxsize).strip()
    return yaml.dump(plain(data), Dumper=_Dumper, sort_keys=False)


def plain(value: Any) -> Any:
    """Convert mappings, sequences and numbers, NumPy's included, to the types that YAML has."""
    if isinstance(value, Mapping):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bool) or type(value) in (int, float, str):
        return value
    if type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy":
        return bool(value)
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value


def _numpy_number(node: yaml.Node) -> int | float | bool | None:
    """Decode a NumPy scalar from its type and bytes; None if it is no number."""
    try:
        kind, data = node.value
        arguments = next(value for key, value in kind.value if key.value == "args")
        state = next(value for key, value in kind.value if key.value == "state")
        content = yaml.constructor.SafeConstructor().construct_yaml_binary(data)
        order, (type_, size) = state.value[1].value, arguments.value[0].value
        code = _STRUCT.get(type_ + size)
        if type_ in "iu":
            return int.from_bytes(content, "big" if order == ">" else "little", signed=type_ == "i")
        number: int | float | bool = struct.unpack((order if order in "<>" else "=") + str(code), content)[0]
        return number
    except (AttributeError, IndexError, LookupError, StopIteration, TypeError, ValueError, struct.error):
        return None


def _content(path: Path) -> str:
    """Read a file. For a pipe, raise RequestError if it has no writer, because reading would block
    forever.
    """
    if not stat.S_ISFIFO(path.stat().st_mode):
        return path.read_text()
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb", buffering=0) as pipe:
        begin = pipe.read(1)  # None: a writer has written nothing yet
        if begin == b"":
            raise RequestError(f"read {path}: a pipe to which nobody writes; a file is accepted")
        os.set_blocking(fd, True)
        return ((begin or b"") + pipe.read()).decode()
