"""PyTorch's own test modules: which are found in a folder, and which of their tests are run (tests/torch)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch.__main__ import main
from tests.torch.sources import PLACES, SUITES, THREADS, Case, by_workers, left_out, modules
from tests.torch.suites import described

TWO, FOUR = Case("A.test_a", "processes", 2), Case("A.test_b", "continuous", 4)
THREADED, MANY = Case("B.test_c", THREADS, 4), Case("B.test_d", "processes", 64)


def test_a_suites_modules_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "distributed" / "tensor" / "debug"
    folder.mkdir(parents=True)
    for name in ("test_b.py", "common.py", "test_a.txt", "agent_test.py"):
        (folder / name).touch()
    (folder.parent / "test_z.py").touch()
    (tmp_path / "distributed" / "test_c10d_gloo.py").touch()
    names = [module.name for module in modules(tmp_path, SUITES["dtensor"])]
    assert names == ["agent_test.py", "test_b.py", "test_z.py"]
    assert [module.name for module in modules(tmp_path, SUITES["gloo"])] == ["test_c10d_gloo.py"]
    assert modules(tmp_path, SUITES["fsdp2"]) == []


def test_tests_of_one_number_of_workers_share_jobs() -> None:
    assert by_workers([TWO, FOUR, THREADED, MANY]) == {2: [TWO], 4: [FOUR]}


def test_what_is_left_out_has_a_reason() -> None:
    assert not left_out(TWO)
    assert "threads of one process" in left_out(THREADED)
    assert left_out(MANY) == "no testbed here has 64 workers for it"
    assert described([TWO, FOUR, MANY]) == "2 tests; 1 left out: no testbed here has 64 workers for it"


@pytest.mark.parametrize(("workers", "place"), PLACES.items())
def test_a_place_has_its_workers_in_two_units(workers: int, place: str) -> None:
    parts = [part.split(":") for part in place.split(",")]
    assert sum(int(number) for _, number in parts) == workers
    assert [unit for unit, _ in parts] == ["u1", "u2"][: min(workers, 2)]


@pytest.mark.parametrize("words", [["--suite", "gloo"], ["--sources", "/nowhere"]])
def test_a_folder_that_is_not_there_is_said(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "github.com/pytorch/pytorch" in capsys.readouterr().err
