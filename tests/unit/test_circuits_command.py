"""`testbed circuits schedule`: the file that a user names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.api import circuits as library
from testbed.client.caller import Caller
from testbed.errors import RequestError

DESCRIBED = {"period_ms": 5, "matchings": [{"start_ms": 0, "circuits": [["u1o1", "u2o1"]]}]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("period_ms: 2026-01-01", "period_ms: 2026-01-01; 1 to 60000 ms is accepted"),
        (
            "{period_ms: 5, matchings: [{start_ms: 0, circuits: [[2026-01-01, u1o1]]}]}",
            "matchings[0].circuits: '2026-01-01' is no optical port; a name is like u1o2",
        ),
        (
            "{period_ms: 5, matchings: [{start_ms: 0, circuits: [[there, u1o1]]}]}",
            "matchings[0].circuits: 'there' is no optical port; a name is like u1o2",
        ),
        (
            "x" * 80,
            f"schedule: {'x' * 57}...; a mapping with the keys period_ms, guard_ms, routing, matchings is "
            "accepted",
        ),
    ],
)
def test_a_file_is_refused_before_it_is_sent(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "schedule.yaml"
    path.write_text(text)
    with pytest.raises(RequestError) as error:
        library.read_timetable(path)
    assert str(error.value) == f"{path}: {said}"


def test_a_file_is_read_as_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acting: list[bool] = []

    @contextlib.contextmanager
    def noted(self: Caller) -> Iterator[None]:
        acting.append(True)
        yield
        acting.append(False)

    def read(path: Path) -> Any:
        return DESCRIBED if acting == [True] else None

    monkeypatch.setattr(Caller, "acting", noted)
    monkeypatch.setattr(library, "read_yaml", read)
    assert library.read_timetable(tmp_path) == DESCRIBED
