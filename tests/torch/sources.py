"""PyTorch's own test modules that are run besides the 285 tests of its wheel, and where they are found. They
are in no wheel: `python -m tests.torch --sources FOLDER` reads them from the folder `test` of a checkout of
PyTorch. Imports nothing of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WHERE = (
    "PyTorch's test modules are not run: give --sources FOLDER, the folder `test` of a checkout of "
    "https://github.com/pytorch/pytorch at the tag of the torch that is installed"
)


@dataclass(frozen=True, slots=True)
class Suite:
    """Modules below test/distributed: files, and folders with all modules in them. `counted`: their CPUs
    count as GPUs; otherwise torch skips the tests for lack of devices.
    """

    parts: tuple[str, ...]
    counted: bool = False


SUITES: dict[str, Suite] = {
    "gloo": Suite(("test_c10d_gloo.py",)),
    "functional": Suite(("test_functional_api.py",)),
    "fsdp2": Suite(("_composable/fsdp",), counted=True),
    "dtensor": Suite(("tensor",)),
    "pipelining": Suite(("pipelining",), counted=True),
    "checkpoint": Suite(("checkpoint",), counted=True),
    "elastic": Suite(("elastic/agent",)),
}

NEITHERS = {
    "test_dtensor_ops": "each of its 2,022 tests that have no threads is one process with torch's backend "
    "`fake`, which sends nothing: gloo and inc take no part"
}
"""Modules that are run only when named, and the reason."""

# placement by number of workers; with two units, sums are made across them
PLACES = {
    1: "u1:1",
    2: "u1:1,u2:1",
    3: "u1:2,u2:1",
    4: "u1:2,u2:2",
    5: "u1:3,u2:2",
    6: "u1:3,u2:3",
    7: "u1:4,u2:3",
    8: "u1:4,u2:4",
    9: "u1:5,u2:4",
}


def modules(sources: Path, suite: Suite) -> list[Path]:
    """Return the modules of a suite, sorted by name; empty where the folder has none of them."""
    paths: list[Path] = []
    for part in suite.parts:
        path = sources / "distributed" / part
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        paths += [file for file in files if is_module(file.name)]
    return paths


def is_module(name: str) -> bool:
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def path_of(sources: Path, module: Path) -> list[str]:
    """Return the folders in which a module finds the neighbours that it imports."""
    return [str(module.parent), str(sources / "distributed"), str(sources)]


@dataclass(frozen=True, slots=True)
class Case:
    """A test of a module: `Class.test`, how torch runs it, and with how many workers."""

    name: str
    way: str
    workers: int


PROCESSES, CONTINUOUS, THREADS, ALONE = "processes", "continuous", "threads", "alone"
RUN = (PROCESSES, CONTINUOUS, ALONE)
LEFT_OUT = {
    THREADS: "its workers are threads of one process, by torch's backend `threaded`, and no gloo's",
}


def left_out(case: Case) -> str:
    """Return why a test is not run, or ""."""
    if case.way in LEFT_OUT:
        return LEFT_OUT[case.way]
    return "" if case.workers in PLACES else f"no testbed here has {case.workers} workers for it"


def by_workers(cases: Sequence[Case]) -> dict[int, list[Case]]:
    """Group the tests that are run by their number of workers; those of one group share jobs."""
    groups: dict[int, list[Case]] = {}
    for case in cases:
        if not left_out(case):
            groups.setdefault(case.workers, []).append(case)
    return groups
