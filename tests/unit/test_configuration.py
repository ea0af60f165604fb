"""Keys of a configuration: the lines that name mistakes, word for word, and the declarations from which the
reader, the way back to words, the documents' tables and the JSON Schema come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from testbed import documents
from testbed.errors import RequestError
from testbed.keys import (
    ByName,
    Either,
    ListOf,
    Parameter,
    Plain,
    Rate,
    Section,
    Whole,
    YesNo,
    key,
    keys_of,
    section_of,
)
from testbed.topology import catalogue
from testbed.topology.load import parse
from testbed.topology.model import Topology
from testbed.topology.values import Reading, plain_values, read_into, section_said
from testbed.topology.yaml_form import words
from testbed.topology.yaml_text import read_yaml

ROOT = Path(__file__).resolve().parents[2]
ERRORS = Path(__file__).with_name("configuration_errors.txt")
GOOD = {"units": [{"kind": "gpu", "hosts": 4}, {"kind": "cpu", "hosts": 2}], "scale": 100}
SCHEMA = jsonschema.Draft202012Validator(documents.schema())


def mistakes(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """Yield what a configuration says beside GOOD, a line in YAML, and the error, the indented line below."""
    lines = ERRORS.read_text().splitlines()
    for said, error in zip(lines[::2], lines[1::2], strict=True):
        (tmp_path / "said.yaml").write_text(said)
        yield read_yaml(tmp_path / "said.yaml"), error.strip()


def test_each_mistake_is_one_line_word_for_word(tmp_path: Path) -> None:
    count = 0
    for change, error in mistakes(tmp_path):
        with pytest.raises(RequestError) as caught:
            parse({**GOOD, **change}, "test")
        assert str(caught.value) == error, change
        count += 1
    assert count > 100


def test_what_documents_say_of_keys_is_what_is_declared() -> None:
    assert documents.stale() == [], "run `make documents`"


def configurations() -> Iterator[tuple[str, Any]]:
    """Yield all ready configurations, also in the words that they come back in, and the documents' one."""
    for name, data in catalogue.READY.items():
        yield name, data
        yield f"words of {name}", words(catalogue.ready(name))
    page = (ROOT / "docs" / "configuration.md").read_text()
    text = re.search(r"```yaml\n(name: .*?)```", page, re.DOTALL)
    assert text
    yield "of the documents", yaml.safe_load(text[1])


def test_the_schema_accepts_what_the_reader_does() -> None:
    for name, data in configurations():
        topology = parse(data, name)
        assert parse(words(topology), name) == topology
        assert not [error.message for error in SCHEMA.iter_errors(data)], name


def plain_keys(section: Section, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all keys whose values the reader checks by their kind alone."""
    for each in section.keys:
        if isinstance(each.kind, (*get_args(Plain), Rate)):
            yield (*path, each.name)
        for suffix, inner in _inner(each.kind):
            yield from plain_keys(inner, (*path, each.name, *suffix))


def _inner(kind: Any) -> Iterator[tuple[tuple[str | int, ...], Section]]:
    match kind:
        case Section():
            yield (), kind
        case ListOf(_, of):
            yield from (((0, *suffix), inner) for suffix, inner in _inner(of))
        case Either(first, second):
            yield from _inner(first)
            yield from _inner(second)
        case ByName():
            return


def changed(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return data with another value at a path, made where it is not there."""
    if not path:
        return value
    first, *rest = path
    if first == 0:
        items = data if isinstance(data, list) else [{}]
        return [changed(items[0], tuple(rest), value), *items[1:]]
    old = data if isinstance(data, dict) else {}
    return {**old, first: changed(old.get(first), tuple(rest), value)}


def test_a_wrong_value_is_refused_by_reader_and_schema_alike() -> None:
    paths = list(plain_keys(section_of(Topology)))
    assert len(paths) > 20
    pods = {"units": [{"hosts": 1, "racks": 1}] * 2}  # where a rate of pods and a core are accepted
    for path in paths:
        for wrong in (None, -1.5, [[]], {"a": 1, "b": 2}):
            data = changed(pods, path, wrong)
            assert not SCHEMA.is_valid(data), (path, wrong)
            with pytest.raises(RequestError, match=rf"\b{path[-1]}: "):
                parse(data, "wrong")


@pytest.mark.parametrize("name", ["a\nb", "a\n", "a\tb", "\x7f", "a\u2028b", "", "x" * 61])
def test_a_name_of_more_than_a_line_is_refused_by_reader_and_schema_alike(name: str) -> None:
    data = {"name": name, "units": [{"hosts": 1}]}
    assert not SCHEMA.is_valid(data)
    with pytest.raises(RequestError, match=r"^name: "):
        parse(data, "wrong")


@dataclass(frozen=True, slots=True)
class _Planted:
    """A section with keys of several kinds, one of them under another name."""

    depth: int = field(default=3, metadata=key(Whole(1, 9), "how deep"))
    rate_mbps: float | None = field(default=None, metadata=key(Rate(), "how fast", name="speed_mbps"))
    bold: bool = field(default=False, metadata=key(YesNo(), "whether it is"))
    made: int = 7  # no key's


def test_a_key_is_declared_once() -> None:
    """Its field is all that the reader, the words, the table and the schema need."""
    said = read_into(_Planted(), {"depth": 4, "speed_mbps": 100}, "planted", Reading(scale=10))
    assert said == _Planted(4, 100.0)
    assert section_said(said) == {"depth": 4, "speed_mbps": 100.0, "bold": False}
    assert read_into(_Planted(), section_said(said), "planted", Reading()) == said
    assert plain_values(_Planted, {"bold": True}, "", Reading()) == {"depth": 3, "bold": True}
    for wrong, error in (
        ({"depth": 10}, "planted.depth: 10; a whole number from 1 to 9 is accepted"),
        ({"made": 1}, "planted.made: 1; unknown key; accepted are depth, speed_mbps, bold"),
        ({"speed_mbps": 5}, "planted.speed_mbps: 5 at scale 10 is 0.5 Mb/s; from 1 to 20000 Mb/s can"),
    ):
        with pytest.raises(RequestError, match=error):
            read_into(_Planted(), wrong, "planted", Reading(scale=10))
    whole = keys_of(_Planted)["depth"]
    assert whole == Parameter("depth", Whole(1, 9), 3, "how deep")
    assert documents.accepted(whole.kind) == "1 to 9"
    assert documents.schema_of(section_of(_Planted))["properties"]["bold"] == {
        "type": "boolean",
        "description": "whether it is",
    }


def test_a_stale_table_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = documents.rendered()
    monkeypatch.setattr(documents, "DOCS", tmp_path)
    monkeypatch.setattr(documents, "SCHEMA", tmp_path / "configuration.json")
    for path, text in texts.items():
        (tmp_path / path.name).write_text(text)
    assert documents.stale() == []
    page = tmp_path / "configuration.md"
    page.write_text(page.read_text().replace("| `mtu` | 1280 to 9000", "| `mtu` | 1280 to 9001"))
    assert documents.main(["--check"]) == 1
    assert documents.main([]) == 0
    assert documents.stale() == []
    page.write_text("no marks")
    with pytest.raises(LookupError, match="no table between the marks of 'keys'"):
        documents.stale()
