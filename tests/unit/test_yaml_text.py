"""YAML as it is written: what PyYAML's own rules change without a word, and NumPy's numbers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.topology.load import load
from testbed.topology.yaml_text import plain, read_yaml, written

UNITS = "units: [{hosts: 2}]\n"


def read(folder: Path, content: str | bytes) -> Any:
    file = folder / "file.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_yaml(file)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0o10", 8),
        ("0x10", 16),
        ("-7", -7),
        ("4e4", 40_000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", -float("inf")),
        ("true", True),
        ("null", None),
        ("", None),
        ("~", None),
        *((text, text) for text in ("25:00", "yes", "no", "on", "off", "y", "2024-01-01", "1_000", "0b11")),
        ('"5"', "5"),
    ],
)
def test_a_value_is_as_it_is_written(tmp_path: Path, text: str, value: Any) -> None:
    got = read(tmp_path, f"key: {text}\n")["key"]
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (f"{UNITS}mtu: 25:00\n", "mtu: 25:00; a whole number from 1280 to 9000 is accepted"),
        (f"{UNITS}name: 5\n", "name: 5 is a number; in quotes it is a name"),
        ("units: [{hosts: 2, engine: off}]\n", "engine: off; "),
        (f"{UNITS}host_rate_mbps: 4_0\n", "host_rate_mbps: 4_0; "),
    ],
)
def test_what_is_no_such_value_is_one_line(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(content)
    with pytest.raises(RequestError) as refused:
        load(file)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_was_meant_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(b"\xef\xbb\xbfunits: [{hosts: 010}]\r\nname: 2024-01-01\r\nhost_rate_mbps: 4e4\r\n")
    topology = load(file)
    assert (topology.units[0].hosts, topology.name, topology.host_link.rate_mbps) == (10, "2024-01-01", 4e4)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abc019-:.~<e_ \ufeff"), inner),
        max_leaves=8,
    )
)
def test_what_is_written_is_read_as_the_same(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("same")
    got = read(folder, written(data))
    assert got == data
    assert repr(got) == repr(data), "types, too"


NUMBERS = [np.int64(-5), np.uint8(200), np.int32(7), np.float32(2.5), np.float64(0.1), np.bool_(True)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: type(number).__name__)
def test_numpys_numbers_are_numbers(tmp_path: Path, number: np.generic) -> None:
    """Those that yaml.dump writes in a user's script, and those that the library is given."""
    dumped = io.StringIO()
    yaml.dump({"first": number, "again": [number, number]}, dumped)
    value = number.item()
    for got in (read(tmp_path, dumped.getvalue()), plain({"first": number, "again": (number, number)})):
        assert got == {"first": value, "again": [value, value]}
        assert type(got["first"]) is type(value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a: !!python/object/apply:os.system [true]\n", "a value of the type python/object/apply:os.system"),
        ("a: !!python/object/apply:numpy._core.multiarray.scalar [1, 2]\n", "multiarray.scalar; numbers, "),
        ("a: !mine 5\n", "a value of the type !mine; numbers, texts"),
    ],
)
def test_other_objects_are_one_line(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(RequestError) as refused:
        read(tmp_path, content)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
