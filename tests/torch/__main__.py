"""Compare torch's own distributed tests on `inc` and on gloo: `python -m tests.torch [TEST...]`.

Brings a testbed up and runs the tests of torch.testing._internal.distributed.distributed_test on it, by `inc`
and by gloo, each as workers of jobs; with --sources, also those of PyTorch's own test modules
(tests/torch/sources.py). Fails where a test passes by gloo and not by inc, unless tests/torch/exceptions.py
gives a reason; and where an exception is no longer needed. Needs root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.limits import CALL_S
from tests.privileged.commands import running
from tests.torch.exceptions import EXCEPTIONS, SUITE_EXCEPTIONS
from tests.torch.outcomes import Outcome, Script, counted, judged, run_all
from tests.torch.sources import PLACES, SUITES, WHERE, modules
from tests.torch.suites import CONFIG, run_suites
from workloads.native import build

WORKER = Path(__file__).with_name("worker.py")
WORKERS = 4  # with fewer, torch skips some of the tests


def names_of_tests() -> list[str]:
    """Return the tests of torch's module, sorted by name."""
    code = (
        "import os; os.environ.update(BACKEND='gloo', WORLD_SIZE='4');"
        "from torch.testing._internal.distributed.distributed_test import DistributedTest as D;"
        "print(*(n for n in dir(D._DistTestBase) if n.startswith('test_')))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=CALL_S
    )
    return ended.stdout.split()


def main(argv: Sequence[str]) -> int:
    build.compiled()  # compile before the first test, whose time limit does not allow for it
    options = _parsed(argv)
    known = names_of_tests()
    if unknown := set(options.tests) - set(known):
        raise SystemExit(f"torch has no such test: {', '.join(sorted(unknown))}")
    began = time.monotonic()
    backends = (options.only,) if options.only else ("inc", "gloo")
    tests, suites = options.tests, options.suite
    if not tests and not suites:
        tests, suites = known, list(SUITES) if options.sources else []
    with tempfile.TemporaryDirectory(prefix="optinc-torch-") as made:
        folder = Path(made)
        config = folder / "units.yaml"
        config.write_text(CONFIG)
        with running(str(config)) as testbed:
            scripts = {each: Script(WORKER, (each,), PLACES[WORKERS], WORKERS) for each in backends}
            both = {each: run_all(testbed, each, scripts[each], tests, folder) for each in backends}
            _write(options.json, both)
            for outcomes in run_suites(testbed, backends, options.sources, suites, folder):
                both = {backend: both[backend] | outcomes[backend] for backend in backends}
                _write(options.json, both)
    for backend, each in both.items():
        print(f"{backend}: {counted(each)}")
    exceptions = EXCEPTIONS | SUITE_EXCEPTIONS
    wrong = [] if options.only else judged(both["inc"], both["gloo"], exceptions)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if not options.sources:
        print(WHERE)
    print(f"{len(exceptions)} exceptions; {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch", description="torch's own tests on inc")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome there")
    parser.add_argument("--only", choices=("inc", "gloo"), help="run them by one of the two")
    parser.add_argument(
        "--sources", type=Path, metavar="FOLDER", help="the folder `test` of a checkout of PyTorch"
    )
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="SUITE[/MODULE]",
        help=f"of --sources, and no others (all): {', '.join(SUITES)}; dtensor/test_init is one module",
    )
    parser.add_argument("tests", nargs="*", metavar="TEST", help="such as test_all_reduce_sum; all of them")
    options = parser.parse_args(argv)
    if options.suite and not options.sources:
        parser.error(WHERE)
    if options.sources:
        options.sources = options.sources.resolve()
        if not (options.sources / "distributed").is_dir():
            parser.error(f"{options.sources} has no folder `distributed`: {WHERE}")
    for words in options.suite:
        name, _, module = words.partition("/")
        if name not in SUITES:
            parser.error(f"--suite {words}: {', '.join(SUITES)} are accepted")
        if module and module not in (stems := [each.stem for each in modules(options.sources, SUITES[name])]):
            parser.error(f"--suite {words}: {', '.join(stems)} are accepted behind {name}/")
    return options


def _write(path: Path | None, outcomes: dict[str, dict[str, Outcome]]) -> None:
    """Write the outcomes so far, completely or not at all."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(_rows(outcomes), indent=1) + "\n")
    part.replace(path)


def _rows(outcomes: dict[str, dict[str, Outcome]]) -> dict[str, dict[str, list[str]]]:
    """Return the outcomes of each test, by backend."""
    names = dict.fromkeys(name for each in outcomes.values() for name in each)
    return {
        name: {backend: [each[name].what, each[name].why] for backend, each in outcomes.items()}
        for name in names
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
