"""The coflow trace: what is read from one, and what is said of one that is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.errors import RequestError
from testbed.systems.p4inc.simulator import coflows
from testbed.systems.p4inc.simulator.coflows import Coflow

LINES = ("5 3", "1 0 1 2 1 4:1.5", "2 700 3 0 1 4 2 0:648.0 3:972.0", "7 700 1 0 1 0:8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.txt"


def write(file: Path, lines: tuple[str, ...]) -> Path:
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_trace_is_read(file: Path) -> None:
    trace = coflows.load(write(file, LINES))
    assert trace == (
        Coflow(1, 0.0, (2,), ((4, 1.5),)),
        Coflow(2, 700.0, (0, 1, 4), ((0, 648.0), (3, 972.0))),
        Coflow(7, 700.0, (0,), ((0, 8.0),)),
    )
    assert trace[1].megabytes == 1620


def test_blank_lines_at_the_end_are_none(file: Path) -> None:
    assert len(coflows.load(write(file, (*LINES, "", " ")))) == 3


def changed(number: int, line: str) -> tuple[str, ...]:
    return (*LINES[: number - 1], line, *LINES[number:])


MALFORMED = {
    "no counts": (changed(1, "five 3"), 1, "'five'; a whole number of at least 1"),
    "no racks": (changed(1, "0 3"), 1, "'0'; a whole number of at least 1"),
    "half a head": (changed(1, "5"), 1, "before the number of coflows"),
    "a longer head": (changed(1, "5 3 9"), 1, "1 words too many, the first '9'"),
    "more lines than coflows": (changed(1, "5 2"), 1, "2 coflows, and 3 lines follow"),
    "fewer lines than coflows": (LINES[:-1], 1, "3 coflows, and 2 lines follow"),
    "an id that is none": (changed(2, "x 0 1 2 1 4:1.5"), 2, "the coflow's id: 'x'"),
    "an id of a thousand digits": (changed(2, "9" * 5000 + " 0 1 2 1 4:1.5"), 2, "the coflow's id"),
    "an id twice": (changed(3, LINES[1]), 3, "coflow 1 is in line 2"),
    "an arrival that is none": (changed(2, "1 soon 1 2 1 4:1.5"), 2, "'soon'; a number of at least 0"),
    "an arrival before time": (changed(2, "1 -3 1 2 1 4:1.5"), 2, "'-3'; a number of at least 0"),
    "an arrival out of order": (changed(4, "7 699 1 0 1 0:8"), 4, "699 ms; at least the 700 ms"),
    "no mappers": (
        changed(2, "1 0 0 1 4:1.5"),
        2,
        "its number of mappers: '0'; a whole number of at least 1",
    ),
    "more mappers than said": (changed(3, "2 700 2 0 1 4 2 0:648.0 3:972.0"), 3, "a reducer: '2'; RACK:MB"),
    "fewer mappers than said": (
        changed(3, "2 700 4 0 1 4 2 0:648.0 3:972.0"),
        3,
        "its number of reducers: '0:648.0'",
    ),
    "a mapper's rack out of range": (changed(2, "1 0 1 5 1 4:1.5"), 2, "a rack: '5'; 0 to 4"),
    "a mapper's rack that is none": (changed(2, "1 0 1 -1 1 4:1.5"), 2, "a rack: '-1'; 0 to 4"),
    "a reducer's rack out of range": (changed(2, "1 0 1 2 1 5:1.5"), 2, "a rack: '5'; 0 to 4"),
    "a reducer without a size": (changed(2, "1 0 1 2 1 4"), 2, "a reducer: '4'; RACK:MB"),
    "a reducer of no size": (changed(2, "1 0 1 2 1 4:0"), 2, "a reducer: '4:0'"),
    "a reducer of no number": (changed(2, "1 0 1 2 1 4:big"), 2, "a reducer: '4:big'"),
    "a reducer of an infinite size": (changed(2, "1 0 1 2 1 4:inf"), 2, "a reducer: '4:inf'"),
    "a reducer that is not a number": (changed(2, "1 0 1 2 1 4:nan"), 2, "a reducer: '4:nan'"),
    "fewer reducers than said": (
        changed(4, "7 700 1 0 2 0:8"),
        4,
        "it ends after 6 words, before a reducer's RACK:MB",
    ),
    "more reducers than said": (changed(4, "7 700 1 0 1 0:8 1:8"), 4, "1 words too many, the first '1:8'"),
    "a line cut short": (changed(4, "7 700"), 4, "it ends after 2 words, before its number of mappers"),
    "a blank line between": (changed(3, ""), 3, "it ends after 0 words"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_is_named(name: str, file: Path) -> None:
    lines, number, said = MALFORMED[name]
    with pytest.raises(RequestError) as caught:
        coflows.load(write(file, lines))
    message = str(caught.value)
    assert message.startswith(f"{file}: line {number}: ")
    assert said in message
    assert "accepted" in message or "cut short" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "it is empty"), (b"\n\n", "it is empty"), (b"\xff\xfe1", "not text")]
)
def test_what_is_no_trace_at_all(content: bytes, said: str, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(RequestError, match=said):
        coflows.load(file)


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"nowhere: No such file.*accepted"):
        coflows.load(tmp_path / "nowhere")
    with pytest.raises(RequestError, match=r"Is a directory.*accepted"):
        coflows.load(tmp_path)


def test_a_job_has_its_coflows_mappers_and_bytes(file: Path) -> None:
    trace = coflows.load(write(file, LINES))
    demands = coflows.demands(
        trace, 7, np.random.default_rng(3), volume=2.0, update_gbytes_per_s=4.0, nominal_gbps=10.0
    )
    assert len(demands) == 7
    # each of the three twice before any a third time
    assert sorted(demand.workers for demand in demands[:3]) == [1, 1, 3]
    assert sorted(demand.workers for demand in demands[3:6]) == [1, 1, 3]
    shuffle = next(demand for demand in demands if demand.workers == 3)
    assert shuffle.megabytes == pytest.approx(2 * 1620 / 3)
    # the larger reducer has 2 * 972 MB
    assert shuffle.update_s == pytest.approx(1.944 / 4)
    assert shuffle.held_s == pytest.approx(1080 * 8e-3 / 10)
