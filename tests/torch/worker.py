"""A worker that runs tests of torch's own distributed module: `worker.py BACKEND FOLDER TEST...`, as a job.

Torch starts processes of its own for each of these tests. Here the job's workers are those processes. Each
test has a process group of its own, and each worker prints one JSON line for it. After a test that fails on
only some workers the job ends, since what the others still wait for would spoil the next test; likewise after
one that hangs. Whether a test is skipped is always decided as for gloo, so that none is left out for a name
that torch does not know; tests that ask for GPUs get the CPU instead.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.torch import accelerator
from tests.torch.exceptions import CALLED_GLOO

# time limit of a test, which takes seconds on a quiet machine: with torch.compile four workers compile C++ at
# once, which took longer than a minute on two busy cores
LIMIT_S = 120.0
OTHERS_S = 3.0  # how long to wait for the others' failures after a failure on this worker
MARK, BEGUN = "torch-test: ", "begun"


def main() -> None:
    backend, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    tests = torchs_tests()
    tests._rank_temp_file = kept_while_used(tests._rank_temp_file)

    class Case(tests.TestDistBackend, tests.DistributedTest._DistTestBase):  # type: ignore[misc]
        """The tests, collected as in torch's own test/distributed/test_distributed_spawn.py."""

    for name in names:
        tests.BACKEND = "gloo" if name in CALLED_GLOO else backend
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        say(name, BEGUN)
        outcome, why = run(Case, tests, name, backend, Path(folder) / name)
        faulthandler.cancel_dump_traceback_later()
        say(name, outcome, why)
        if outcome == "failed" and not (have_all_failed(Path(folder) / name) and is_left()):
            os._exit(1)  # even if threads still run
    os._exit(0)


def say(test: str, outcome: str, why: str = "") -> None:
    print(MARK + json.dumps({"test": test, "outcome": outcome, "why": why}), flush=True)


def torchs_tests() -> Any:
    """Return the module, with its decorators evaluated for gloo."""
    os.environ["BACKEND"] = "gloo"
    from torch.testing._internal import common_distributed

    accelerator.stand_in(common_distributed)
    from torch.testing._internal.distributed import distributed_test as tests

    os.environ["BACKEND"] = "mpi"  # the decorators about the number of workers accept any number for mpi
    return tests


def run(case: Any, tests: Any, name: str, backend: str, folder: Path) -> tuple[str, str]:
    """Run a test. Return its outcome (passed, skipped or failed), and why."""
    from torch.testing._internal import common_utils

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["TEMP_DIR"] = str(folder)
    for part in ("barrier", "test_dir", "init_dir", "files"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    # so that files with fixed names do not clash with another test's or user's
    tempfile.tempdir = str(folder / "files")
    test = case(name)
    test.rank, test.file_name = rank, str(folder / "store")
    tests.Barrier.barrier_id = 0
    timeout_s = tests.CUSTOM_PG_TIMEOUT.get(name, 2 * LIMIT_S)
    try:
        dist.init_process_group(
            backend,
            init_method=f"file://{test.file_name}",
            world_size=world,
            rank=rank,
            timeout=timedelta(seconds=timeout_s),
        )
        test._barrier()
        common_utils.set_rng_seed()
        outcome = "passed", ""
        try:
            with accelerator.in_place():
                getattr(test, name)()
        except unittest.SkipTest as skip:
            outcome = "skipped", str(skip)
        except SystemExit as end:
            outcome = "skipped", skip_of(tests, end.code)
        test._barrier()
        if dist.is_initialized():
            dist.destroy_process_group()
    except Exception:
        return "failed", last_lines(traceback.format_exc())
    return outcome


def kept_while_used(
    rank_temp_file: Callable[[], AbstractContextManager[str]],
) -> Callable[[], AbstractContextManager[str]]:
    """Keep the first worker's file that torch's tests share until all workers are done with it. Torch removes
    it when the first is done, and with any backend another may not have read it by then.
    """

    @contextmanager
    def kept() -> Iterator[str]:
        with rank_temp_file() as name:
            yield name
            dist.barrier()

    return kept


def have_all_failed(folder: Path) -> bool:
    """Return whether this worker's test also failed on each of the other workers, so that none of them still
    waits.
    """
    ends = folder / "ends"
    ends.mkdir(parents=True, exist_ok=True)
    (ends / os.environ["RANK"]).touch()
    deadline = time.monotonic() + OTHERS_S
    while len(list(ends.iterdir())) < int(os.environ["WORLD_SIZE"]):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_left() -> bool:
    """Leave the group of a test that failed. Return whether that was possible."""
    try:
        if dist.is_initialized():
            dist.destroy_process_group()
    except Exception:
        return False
    return True


def skip_of(tests: Any, code: object) -> str:
    """Return torch's meaning of an exit code."""
    skips = sys.modules["torch.testing._internal.common_distributed"].TEST_SKIPS
    return next((skip.message for skip in skips.values() if skip.exit_code == code), f"exit code {code}")


def last_lines(text: str) -> str:
    lines: Sequence[str] = [line for line in text.splitlines() if line.strip()]
    return " | ".join(line.strip() for line in lines[-6:])[:600]


if __name__ == "__main__":
    main()
