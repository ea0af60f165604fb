"""Render tables of docs/ from declarations, each between two marks: the keys of a configuration, and the
options of a job. Also render docs/schemas/: that of a configuration, by which editors check it, and those of
all `--json` output.

`python -m testbed.documents` writes them; with `--check` it names each stale file and exits 1.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.jobs.option_table import DEFAULTS, OPTIONS
from testbed.keys import (
    NEEDED,
    PERCENTAGE,
    TIME,
    ByName,
    Duration,
    Either,
    HostName,
    Kind,
    ListOf,
    Name,
    Names,
    Parameter,
    Percentage,
    PowerOfTwo,
    ProgramFiles,
    Quantity,
    Rate,
    Section,
    ShellLine,
    Text,
    Time,
    Whole,
    WholeOrWord,
    Word,
    YesNo,
    section_of,
)
from testbed.messages.schema import DIALECT, FOLDER
from testbed.messages.schema import rendered as printed_schemas
from testbed.optics.delays import MOST_DELAY_MS
from testbed.plugins.counts import counts_types
from testbed.topology.fields import MOST_NAME, shown
from testbed.topology.model import Topology
from testbed.topology.values import HOST_NAME, MOST_COMMAND, UNSHAPED, value_said

DOCS = FOLDER.parent
SCHEMA = FOLDER / "configuration.json"
_CONTROLS = r"[\u0000-\u001f\u007f-\u009f\u2028\u2029]"  # characters that end a line or have no shape
_CLASS = r"^.+\.py:[A-Za-z_]\w*$"


# ---- tables ----


def accepted(kind: Kind) -> str:
    """Describe the values of a kind in the words of documents."""
    match kind:
        case Duration():
            return "milliseconds or what they are drawn from"
        case Quantity(low, high, noun):
            return f"{noun}, {low:g} to {high:g}"
        case Whole(low, high):
            return f"{low} to {high}"
        case WholeOrWord(low, high, word):
            return f"{low} to {high}, or `{word}`"
        case PowerOfTwo(low, high):
            return f"a power of two, {low} to {high}"
        case Word(words):
            return ", ".join(f"`{word}`" for word in words)
        case YesNo():
            return "`true`, `false`"
        case Rate():
            return f"Mb/s, or `{UNSHAPED}`"
        case Name():
            return f"a line of up to {MOST_NAME} characters"
        case Names(noun):
            return f"a list of names of {noun}"
        case ProgramFiles():
            return "a list of `FILE.py:CLASS`"
        case Time():
            return "a time, such as `200us`, `5ms` or `0.1s`"
        case Percentage():
            return "a percentage with its sign, such as `0.1%`"
        case HostName():
            return "up to 63 letters, digits and hyphens"
        case ShellLine():
            return "a command line"
        case Text(noun):
            return noun
        case ListOf(noun, _, least, most):
            return f"a list of {f'{least} to {most} ' if most else ''}{noun}"
        case ByName(noun, of):
            return f"{noun}s by name, each with {accepted(of)}"
        case Either(first, second):
            return f"{accepted(first)}; or {accepted(second)}"
        case Section():
            return "keys and values"


def shown_default(parameter: Parameter) -> str:
    """Describe the default of a key in the words of documents."""
    if parameter.usual:
        return parameter.usual
    if parameter.default is None or isinstance(parameter.kind, Section | ProgramFiles | ByName):
        return "none"
    words = value_said(parameter.default)
    if isinstance(words, bool):
        return str(words).lower()
    return f"{words:g}" if isinstance(words, float) else shown(words)


def _rows(section: Section, path: str = "") -> Iterator[str]:
    """Yield a row for each key of a section, followed by the rows of its own sections; an inner section that
    only has keys of this one has no rows.
    """
    for each in section.keys:
        scopes = [noun for noun, has in (("planes", each.of_planes), ("optical ports", each.of_ports)) if has]
        meaning = each.help + (f"; {' and '.join(scopes)} may have their own" if scopes else "")
        takes, usual = accepted(each.kind), shown_default(each)
        yield f"| `{path}{each.name}` | {takes} | {usual} | {meaning} |"
        for suffix, inner in _sections(each.kind):
            if all(key in section.keys for key in inner.keys):
                continue
            yield from _rows(inner, f"{path}{each.name}{suffix}.")


def _sections(kind: Kind) -> Iterator[tuple[str, Section]]:
    match kind:
        case Section():
            yield "", kind
        case ListOf(_, of):
            yield from ((f"[]{suffix}", section) for suffix, section in _sections(of))
        case ByName(noun, of):
            yield from ((f".{noun.upper()}{suffix}", section) for suffix, section in _sections(of))
        case Either(first, second):
            yield from _sections(first)
            yield from _sections(second)


def configuration() -> str:
    """Render the table of all keys of a configuration."""
    return "\n".join(["| key | takes | default | |", "|---|---|---|---|", *_rows(section_of(Topology))])


def options() -> str:
    """Render the table of a job's options, with the command's flags and a jobs file's keys."""
    rows = ["| `testbed run` | a job's key | default | |", "|---|---|---|---|"]
    for name, option in OPTIONS.items():
        flags = ", ".join(f"`{flag}`" for flag in option.flags_of(name))
        default = DEFAULTS[name]
        usual = option.usual or ("none" if default is None else str(default).lower())
        more = f": [{option.page.partition('#')[0]}]({option.page})" if option.page else ""
        meaning = option.help.replace("|", r"\|")
        rows.append(f"| {flags} | `{name}` | {usual} | {meaning}{more} |")
    return "\n".join(rows)


TABLES = {"configuration.md": {"keys": configuration}, "scheduling.md": {"options": options}}
"""The tables of each document, by their marks."""


# ---- the schema ----


def schema_of(kind: Kind) -> dict[str, Any]:
    """Make the JSON Schema of a kind's values, without the rules between keys."""
    match kind:
        case Duration():
            ms = {"type": "number", "minimum": 0, "maximum": MOST_DELAY_MS}
            drawn = {"type": "object", "minProperties": 1, "maxProperties": 1}
            return {"anyOf": [ms, drawn]}
        case Quantity(low, high):
            return {"type": "number", "minimum": low, "maximum": high}
        case Whole(low, high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case WholeOrWord(low, high, word):
            return {"anyOf": [{"type": "integer", "minimum": low, "maximum": high}, {"const": word}]}
        case PowerOfTwo(low, high):
            powers = (1 << bit for bit in range(high.bit_length()))
            return {"enum": [power for power in powers if low <= power <= high]}
        case Word(words):
            return {"enum": list(words)}
        case YesNo():
            return {"type": "boolean"}
        case Rate():
            return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": UNSHAPED}]}
        case Name():
            controls = {"pattern": _CONTROLS}
            return {"type": "string", "minLength": 1, "maxLength": MOST_NAME, "not": controls}
        case Names():
            return {"type": "array", "items": {"type": "string"}}
        case ProgramFiles():
            return {"type": "array", "items": {"type": "string", "pattern": _CLASS}}
        case Time():
            return {"type": "string", "pattern": f"^{TIME.pattern}$"}
        case Percentage():
            return {"type": "string", "pattern": f"^{PERCENTAGE.pattern}$"}
        case HostName():
            return {"type": "string", "pattern": f"^{HOST_NAME.pattern}$"}
        case ShellLine():
            return {"type": "string", "minLength": 1, "maxLength": MOST_COMMAND}
        case Text():
            return {"type": "string"}
        case ListOf(_, of, least, most):
            return {"type": "array", "items": schema_of(of), "minItems": least} | (
                {} if most is None else {"maxItems": most}
            )
        case ByName(_, of):
            return {"type": "object", "additionalProperties": schema_of(of)}
        case Either(first, second):
            return {"anyOf": [schema_of(first), schema_of(second)]}
        case Section(keys, is_open):
            properties = {each.name: {**schema_of(each.kind), "description": each.help} for each in keys}
            needed = [each.name for each in keys if each.usual == NEEDED]
            return {"type": "object", "properties": properties, "additionalProperties": is_open} | (
                {"required": needed} if needed else {}
            )


def schema() -> dict[str, Any]:
    """Make the JSON Schema of a configuration."""
    return {"$schema": DIALECT, "title": "configuration", **schema_of(section_of(Topology))}


# ---- files ----


def rendered() -> dict[Path, str]:
    """Return the content that each file should have. Raises LookupError for a document without a table's
    marks.
    """
    files = {SCHEMA: json.dumps(schema(), indent=2) + "\n", **printed_schemas(counts_types())}
    for document, tables in TABLES.items():
        text = (DOCS / document).read_text()
        for mark, table in tables.items():
            begin, end = f"<!-- {mark}: `make documents` writes this table -->\n", f"<!-- end of {mark} -->"
            place = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", text, re.DOTALL)
            if not place:
                raise LookupError(f"docs/{document} has no table between the marks of {mark!r}")
            text = text.replace(place[0], f"{begin}\n{table()}\n\n{end}")
        files[DOCS / document] = text
    return files


def stale() -> list[Path]:
    """Return the files that differ from the declarations."""
    return [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]


def main(argv: list[str] | None = None) -> int:
    """Write the stale files, or with `--check` report them and return 1."""
    parser = argparse.ArgumentParser(prog="python -m testbed.documents", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    arguments = parser.parse_args(argv)
    texts = rendered()
    for path in stale():
        if not arguments.check:
            path.write_text(texts[path])
            continue
        print(f"{path.name} is stale: run `make documents`", file=sys.stderr)
    return 1 if arguments.check and stale() else 0


if __name__ == "__main__":
    sys.exit(main())
