"""A worker that runs tests of one of PyTorch's test modules: `suite_worker.py BACKEND SOURCES MODULE COUNTED
FOLDER CLASS.TEST...`, as a job.

Torch starts processes of its own for each of these tests. Here the job's workers are those processes, as in
worker.py, and do the same: each test has a process group of its own, by a file, and runs in its own way. Exit
codes have torch's meaning.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import tempfile
import traceback
import unittest
from pathlib import Path
from typing import Any

import torch
from tests.torch import worker
from tests.torch.imported import imported, way_of
from tests.torch.named import Groups, meet_by_hosts_links, take_gloos_place
from tests.torch.sources import ALONE, CONTINUOUS

ERROR = 10  # MultiProcessTestCase's exit code of a process whose test failed; it has sent the reason


def main() -> None:
    backend, sources, module, counted, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    groups = Groups()
    meet_by_hosts_links()
    if backend == "inc":
        take_gloos_place(groups)
    tests = imported(Path(sources), Path(module), counted == "True")
    _start_no_processes()
    environment = dict(os.environ)
    for name in names:
        place = Path(folder) / name
        faulthandler.dump_traceback_later(worker.LIMIT_S, exit=True)
        worker.say(name, worker.BEGUN)
        outcome, why = run(tests, name, place)
        is_left = worker.is_left()
        try:
            groups.end()
        except Exception:
            is_left = False
        os.environ.clear()
        os.environ.update(environment)
        faulthandler.cancel_dump_traceback_later()
        worker.say(name, outcome, why)
        if outcome == "failed" and not (worker.have_all_failed(place) and is_left):
            os._exit(1)  # even if threads still run
    os._exit(0)


def _start_no_processes() -> None:
    """Stop torch's test classes from starting processes, since this worker is one of them. After a crash, let
    Python print the stack: torch's own handler prints no names.
    """
    from torch.testing._internal.common_distributed import MultiProcessTestCase

    MultiProcessTestCase._spawn_processes = lambda self: None  # type: ignore[method-assign]
    torch._C._set_print_stack_traces_on_fatal_signal = lambda _: None  # type: ignore[attr-defined]
    faulthandler.enable()


def run(tests: Any, name: str, place: Path) -> tuple[str, str]:
    """Run a test. Return its outcome (passed, skipped or failed), and why."""
    (place / "files").mkdir(parents=True, exist_ok=True)
    # so that files with fixed names do not clash with another test's or user's
    tempfile.tempdir = str(place / "files")
    of, test = name.rsplit(".", 1)
    made = getattr(tests, of)
    if getattr(made, "__unittest_skip__", False):
        return "skipped", made.__unittest_skip_why__
    ways = {ALONE: alone, CONTINUOUS: continuous}
    parent, child = multiprocessing.Pipe()
    try:
        ways.get(way_of(made), process)(made, test, str(place / "store"), child)
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:
        if end.code == ERROR and parent.poll(0):
            return "failed", worker.last_lines(parent.recv())
        skips = sys.modules["torch.testing._internal.common_distributed"].TEST_SKIPS.values()
        meant = next((each.message for each in skips if each.exit_code == end.code), None)
        return ("skipped", meant) if meant else ("failed", f"exit code {end.code}")
    except Exception:
        return "failed", worker.last_lines(traceback.format_exc())
    return "passed", ""


def process(made: Any, test: str, store: str, pipe: Any) -> None:
    """Act as one of the processes that torch starts for a test. First do what the test's class does in the
    starting process: it may skip the test.
    """
    case = made(test)
    case.setUp()
    try:
        made._run(int(os.environ["RANK"]), test, store, pipe)
    finally:
        case.tearDown()
        case.doCleanups()


def continuous(made: Any, test: str, store: str, _: Any) -> None:
    """Act as one of the processes that torch starts for a class of tests, with a group of its own for
    each test.
    """
    made.rank, made.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    made._init_pg(made.rank, made.world_size, store)
    made._run_test_given_id(test)


def alone(made: Any, test: str, *_: Any) -> None:
    """Run a test of one process."""
    os.environ.pop("RANK", None)
    os.environ.pop("WORLD_SIZE", None)
    result = unittest.TestResult()
    unittest.TestSuite([made(test)]).run(result)
    for _case, why in result.skipped:
        raise unittest.SkipTest(why)
    for _case, trace in (*result.errors, *result.failures):
        raise AssertionError(trace)


if __name__ == "__main__":
    main()
