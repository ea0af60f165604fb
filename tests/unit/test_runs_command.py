"""`testbed runs`: what it prints of records, as text and as JSON, what it refuses, and what a shell
completes.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from testbed import runs
from testbed.__main__ import _records
from testbed.errors import RequestError
from testbed.records import Record, Store
from tests.unit import recorded


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("OPTINC_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.chdir(tmp_path)
    return Store(tmp_path / "runs")


@pytest.fixture
def two(store: Store, capsys: pytest.CaptureFixture[str]) -> list[Record]:
    made = [
        recorded.record(store, [recorded.result(each) for each in times])
        for times in ((10.0, 10.1, 9.9), (15.0, 15.2, 15.1))
    ]
    capsys.readouterr()
    return made


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert runs.main(list(argv)) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    return json.loads(printed(capsys, *argv, "--json"))


def test_list(two: list[Record], store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "list")
    assert f"{two[1].name}" in text
    assert f"2 in {store.folder}, " in text
    listed = as_json(capsys, "list")
    assert [each["name"] for each in listed] == [each.name for each in two]
    assert listed[0]["trustworthy"] == [True, True, True]
    assert listed[0]["bytes"] == two[0].size_bytes


def test_what_does_not_read_is_named(
    two: list[Record], store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (two[0].folder / "record.json").write_text("{")
    assert printed(capsys, "list").endswith(f"what does not read as a record: {two[0].name}\n")
    assert [each["name"] for each in as_json(capsys, "list")] == [two[1].name]


def test_list_of_none(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "list") == f"no records in {store.folder}\n"
    assert as_json(capsys, "list") == []


def test_show(two: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "show", two[0].name).startswith(f"{two[0].name}: done\n")
    assert printed(capsys, "show", "last", two[0].name).count(": done\n") == 2
    shown = as_json(capsys, "show", "last")
    assert shown["name"] == two[1].name
    assert shown["set_up"]["seeds"] == {"ocs": 1}
    assert shown["means"]["round_ms"]["mean"] == pytest.approx(15.1)


def test_open_prints_the_folder(
    two: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(capsys, "open", "last") == f"{two[1].folder}\n"
    assert as_json(capsys, "open", "last") == {"name": two[1].name, "folder": str(two[1].folder)}
    opener, opened = tmp_path / "xdg-open", tmp_path / "opened"
    opener.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")
    printed(capsys, "open", "last")
    assert opened.read_text() == f"{two[1].folder}\n"


def test_compare(two: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(tmp_path.rglob("*"))
    text = printed(capsys, "compare", two[0].name, "last")
    assert "B differs from A by more than the noise in: round" in text
    assert as_json(capsys, "compare", two[0].name, "last")["plot"] is None
    assert sorted(tmp_path.rglob("*")) == before, "nothing is drawn that was not asked for"
    text = printed(capsys, "compare", two[0].name, "last", "--plot", str(tmp_path / "out" / "b.png"))
    assert text.endswith("out/b.png: each run, and the means with their intervals\n")
    assert (tmp_path / "out" / "b.png").stat().st_size > 0
    compared = as_json(capsys, "compare", two[0].name, "last", "--plot", str(tmp_path / "a.png"))
    assert compared["plot"] == str(tmp_path / "a.png")
    assert compared["set_up"] == []
    assert compared["trustworthy"] == [[3, 3], [3, 3]]
    (row,) = [row for row in compared["result"] if row["name"] == "round_ms"]
    assert row["differences"][0]["said"] == "more than the noise"
    assert row["means"][0]["mean"] == pytest.approx(10.0)
    assert (tmp_path / "a.png").exists()


def test_records_joined_by_commas_are_one_side(two: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    compared = as_json(capsys, "compare", f"{two[0].name},{two[1].name}", two[0].name)
    assert compared["records"] == [[two[0].name, two[1].name], [two[0].name]]
    (row,) = [row for row in compared["result"] if row["name"] == "round_ms"]
    assert len(row["means"][0]["values"]) == 6


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["compare", "last"], "compare last: 2 to 26 records are accepted"),
        (["compare", "last", "last", "--plot", "a.pdf"], "--plot a.pdf: a file whose name ends with .png"),
        (["compare", "last", "nothing"], "no record 'nothing' in"),
        (["remove"], "remove: names of records are accepted, or --all"),
        (["remove", "last", "--all"], "remove: names of records are accepted, or --all"),
        (["show", "run"], "record 'run': 2 have that in their name"),
        (["show", "/nowhere"], "record /nowhere: record.json: No such file or directory"),
    ],
)
def test_what_is_refused(two: list[Record], argv: list[str], says: str) -> None:
    with pytest.raises(RequestError) as error:
        runs.main(argv)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_remove(two: list[Record], store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "remove", two[0].name, two[0].name) == {"removed": [two[0].name]}
    assert store.names() == [two[1].name]
    printed(capsys, "remove", "--all")
    assert store.names() == []


def test_switched_off(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPTINC_RUNS", "off")
    with pytest.raises(RequestError, match="OPTINC_RUNS=off switches records off"):
        runs.main(["list"])
    assert printed(capsys, "list", "--records", str(store.folder)) == f"no records in {store.folder}\n"


def test_names_are_completed(two: list[Record]) -> None:
    names = _records(argparse.Namespace(records=None))
    assert list(names) == [two[0].name, two[1].name, "last"]
