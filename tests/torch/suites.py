"""Run PyTorch's own test modules, from a folder of the caller's, by `inc` and by gloo; tests/torch/sources.py
lists them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.limits import CALL_S
from tests.privileged.commands import ROOT, Testbed
from tests.torch.outcomes import Outcome, Script, run_all
from tests.torch.sources import NEITHERS, PLACES, SUITES, Case, Suite, by_workers, left_out, modules

WORKER = Path(__file__).with_name("suite_worker.py")
CONFIG = "name: torch\nunits:\n  - {kind: gpu, hosts: 5}\n  - {kind: gpu, hosts: 5}\n"


def run_suites(
    testbed: Testbed, backends: Sequence[str], sources: Path, names: Sequence[str], folder: Path
) -> Iterator[dict[str, dict[str, Outcome]]]:
    """Run suites (or SUITE/MODULE: one module) by each backend. Yield each module's outcomes, by backend and
    by `suite/module::Class.test`; since a suite takes an hour, finished modules are then known if it is
    stopped.
    """
    for wanted in names:
        name, _, chosen = wanted.partition("/")
        for module in modules(sources, SUITES[name]):
            if chosen not in ("", module.stem):
                continue
            if not chosen and module.stem in NEITHERS:
                print(f"{name}/{module.stem}: not run: {NEITHERS[module.stem]}", flush=True)
                continue
            outcomes: dict[str, dict[str, Outcome]] = {backend: {} for backend in backends}
            cases, why = cases_of(sources, module, SUITES[name])
            label = f"{name}/{module.stem}"
            print(f"{label}: {described(cases) or why}", flush=True)
            for workers, group in by_workers(cases).items():
                for backend in backends:
                    words = (backend, str(sources), str(module), str(SUITES[name].counted))
                    script = Script(WORKER, words, PLACES[workers], workers)
                    place = folder / f"{name}-{module.stem}"
                    made = run_all(testbed, backend, script, [case.name for case in group], place)
                    outcomes[backend] |= {f"{label}::{test}": each for test, each in made.items()}
            yield outcomes


def cases_of(sources: Path, module: Path, suite: Suite) -> tuple[list[Case], str]:
    """Return a module's tests; or none, and the reason why it cannot be imported."""
    words = ("-m", "tests.torch.imported", str(sources), str(module), str(suite.counted))
    ended = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=CALL_S
    )
    cases = [Case(**json.loads(line)) for line in re.findall(r"^case: (.*)", ended.stdout, re.MULTILINE)]
    last = [line for line in (ended.stderr or ended.stdout).splitlines() if line.strip()][-1:]
    return cases, "" if cases else f"has no tests here: {''.join(last)}"


def described(cases: Sequence[Case]) -> str:
    """Return how many tests there are, and how many are left out for which reason."""
    reasons = Counter(left_out(case) for case in cases)
    words = [f"{reasons.pop('')} tests"] if "" in reasons else []
    return "; ".join([*words, *(f"{number} left out: {why}" for why, number in sorted(reasons.items()))])
