"""Import a test module of PyTorch, and list its tests: `imported.py SOURCES MODULE COUNTED` prints a JSON
line for each, with the fields of tests.torch.sources.Case.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import sys
import unittest
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from tests.torch import accelerator
from tests.torch.example import ATTENTION, by_part
from tests.torch.sources import ALONE, CONTINUOUS, PROCESSES, THREADS, Case, path_of
from torch.nn import functional

LEAST_WORKERS = 1
FSDP_WORKERS = 4
_stand_in = ExitStack()  # open until the process ends


def imported(sources: Path, module: Path, counted: bool) -> ModuleType:
    """Import a module from its file. `counted`: with the CPU standing in for GPUs."""
    if counted:
        _count_devices()
    sys.path += path_of(sources, module)
    spec = importlib.util.spec_from_file_location(module.stem, module)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[module.stem] = made  # its tests' pickled objects are found by that name
    spec.loader.exec_module(made)
    return made


def _count_devices() -> None:
    """Make torch count CPUs as GPUs, and put on the CPU what is meant for a GPU."""
    from torch.testing._internal import common_cuda, common_distributed, common_fsdp, common_utils

    accelerator.stand_in(common_distributed)
    common_fsdp.DEVICE_COUNT = common_fsdp.FSDPTestContinuous.world_size = FSDP_WORKERS
    common_cuda.TEST_MULTIGPU = common_utils.TEST_MULTIACCELERATOR = True
    count = mock.patch.object(torch.cpu, "device_count", _count)
    attention = mock.patch.object(functional, ATTENTION, by_part(getattr(functional, ATTENTION)))
    for each in (count, attention, accelerator.in_place(by_any_name=True)):
        _stand_in.enter_context(each)


def _count() -> int:
    return accelerator.COUNT


def cases_of(module: ModuleType) -> list[Case]:
    """Return a module's own tests, by class and name."""
    cases = []
    for name, member in sorted(vars(module).items()):
        if not (inspect.isclass(member) and issubclass(member, unittest.TestCase)):
            continue
        if member.__module__ != module.__name__:
            continue
        way = way_of(member)
        for test in unittest.defaultTestLoader.getTestCaseNames(member):
            cases.append(Case(f"{name}.{test}", way, workers_of(member, test, way)))
    return cases


def way_of(made: type) -> str:
    """Return how torch runs the tests of a class."""
    from torch.testing._internal import common_distributed as common

    if issubclass(made, common.MultiThreadedTestCase):
        return THREADS
    if issubclass(made, common.MultiProcContinuousTest):
        return CONTINUOUS
    return PROCESSES if issubclass(made, common.MultiProcessTestCase) else ALONE


def workers_of(made: Any, test: str, way: str) -> int:
    """Return how many processes torch starts for a test."""
    if way == ALONE:
        return LEAST_WORKERS
    workers = made(test).world_size
    if workers == -2:  # torch's value for as many as there are devices
        workers = torch.get_device_module("cpu").device_count()
    return max(int(workers), LEAST_WORKERS)


def main() -> None:
    sources, module, counted = sys.argv[1:]
    for case in cases_of(imported(Path(sources), Path(module), counted == "True")):
        print("case: " + json.dumps(dataclasses.asdict(case)))


if __name__ == "__main__":
    main()
