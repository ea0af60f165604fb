"""Make the JSON Schemas of all `--json` output from the messages' types: docs/schemas/, a file for each
command. `python -m testbed.documents` writes them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from testbed.messages.coding import UNSET
from testbed.messages.jobs import WrittenCounts
from testbed.messages.result import RepeatedRuns, RunResult
from testbed.messages.script import ScriptResult
from testbed.messages.status import DeadStatus, LivingStatus
from testbed.messages.submission import SubmissionResult
from testbed.messages.traffic import TrafficResult

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "schemas"
_REFERENCE = "#/$defs/{name}"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Printed(NamedTuple):
    """The JSON output of a command: a line about it, the types that it may have, and whether it may be a list
    of them.
    """

    line: str
    kinds: tuple[Any, ...]
    several: bool = False


PRINTED = {
    "status": Printed(
        "`testbed status --json`: an object, or a list where several testbeds run.",
        (*LivingStatus.__args__, DeadStatus),
        several=True,
    ),
    "run": Printed(
        "`testbed run --json`: a job, or the runs of a repeated one (`--repeat`) and their means.",
        (RunResult, RepeatedRuns),
    ),
    "submit": Printed("`testbed submit --json`: all jobs that were queued at once.", (SubmissionResult,)),
    "traffic": Printed("`testbed traffic --json`: the flows that were sent.", (TrafficResult,)),
    "script": Printed("`testbed script --json`: the steps that were done.", (ScriptResult,)),
}


def schema(command: str, counts: Sequence[type]) -> dict[str, Any]:
    """Make the JSON Schema of a command's output. `counts` are the types that written counts may have
    (WrittenCounts).
    """
    printed = PRINTED[command]
    messages: dict[str, type] = {}
    for kind in printed.kinds:
        _add_messages(kind, messages)
    inner = counts if any(_has_counts(hint) for each in messages.values() for hint in _hints(each)) else ()
    for kind in inner:
        _add_messages(kind, messages)
    made, types = msgspec.json.schema_components((*printed.kinds, *inner), ref_template=_REFERENCE)
    made = made[: len(printed.kinds)]
    lists = [{"type": "array", "items": {"anyOf": list(made)}}] if printed.several else []
    return {
        "$schema": DIALECT,
        "title": command,
        "description": printed.line,
        "anyOf": [*made, *lists],
        "$defs": {
            name: _printed(_plain(each), messages[name], inner) for name, each in sorted(types.items())
        },
    }


def _printed(plain: Any, kind: Any, counts: Sequence[type]) -> dict[str, Any]:
    """Make the schema of a message as it is printed, with its fields in order. A field with a default is
    always printed, but a field that may be unset is not required.
    """
    fields = dataclasses.fields(kind)
    properties = {field.name: dict(plain["properties"][field.name]) for field in fields}
    for each in properties.values():
        each.pop("default", None)
    for name, hint in get_type_hints(kind).items():
        if _has_counts(hint):
            properties[name] = _with_counts(properties[name], counts)
    required = [field.name for field in fields if field.default is not UNSET]
    return {**plain, "properties": properties, "required": required}


def _plain(node: Any) -> Any:
    """Simplify a schema: "integer or number" becomes number, and descriptions become single lines."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _plain(each) for key, each in node.items()}
    if isinstance(plain.get("description"), str):
        plain["description"] = " ".join(plain["description"].split())
    if {"type": "number"} in plain.get("anyOf", ()):
        kinds = [each for each in plain["anyOf"] if each != {"type": "integer"}]
        plain = kinds[0] if len(kinds) == 1 else {**plain, "anyOf": kinds}
    return plain


def _add_messages(kind: Any, messages: dict[str, type]) -> None:
    """Add the message types inside a type to the known ones, by name."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        for inner in get_args(kind):
            _add_messages(inner, messages)
    elif kind.__name__ not in messages:
        messages[kind.__name__] = kind
        for inner in _hints(kind):
            _add_messages(inner, messages)


def _hints(kind: Any) -> list[Any]:
    """Return the types of a message's fields."""
    return list(get_type_hints(kind).values())


def _has_counts(hint: Any) -> bool:
    return hint is WrittenCounts or WrittenCounts in get_args(hint)


def _with_counts(node: dict[str, Any], counts: Sequence[type]) -> dict[str, Any]:
    """Replace the schema of any object by those of the types of counts."""
    if "anyOf" in node:
        return {"anyOf": [_with_counts(each, counts) for each in node["anyOf"]]}
    if node != {"type": "object"}:
        return node
    kinds = [{"$ref": _REFERENCE.format(name=kind.__name__)} for kind in counts]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def rendered(counts: Sequence[type]) -> dict[Path, str]:
    """Return the content that each file in docs/schemas should have."""
    return {FOLDER / f"{name}.json": json.dumps(schema(name, counts), indent=2) + "\n" for name in PRINTED}
