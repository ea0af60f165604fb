"""The longest call paths through the modules: a queued job's from its file to its processes, and a link's
rate's from a configuration, and from a decision, to the kernel.

`python -m tests.bench.walks [CHECKOUT ...] [--entries] [--into docs/architecture.md]`, as root; each CHECKOUT
is a working tree in which `make setup` was run, such as one of another commit; the default is this one.
Brings a testbed up, queues a job of two workers in two units, and records (tests/bench/walks_hook.py) which
function of which module called which of another.

A walk has two descriptions. Its way: the modules on the call stack when the end was reached, from the
outermost, over the threads that led there. Its entries: the functions of each module that were called from
another module until then, on these threads; a function called in a loop counts once, and importing a module
does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.host import ROOT
from tests.bench.provenance import depends
from tests.bench.tables import WIDTH, replaced

LIMIT_S = 120.0
NAME = "walks"
HOOK = Path(__file__).with_name("walks_hook.py")
SCRIPT = "walked.py"
CONFIGURATION = """
units: [{hosts: 2}, {hosts: 2}, {kind: cpu, hosts: 2}]
host_rate_mbps: 8000
scale: 200
"""
JOBS = f"""
slot_s: 0.5
jobs: [{{script: {SCRIPT}, place: "u1:1,u2:1", iterations: 1, megabytes: 1}}]
"""
WALKS = {
    "a queued job, from its file to its processes": ("request", "process"),
    "a rate, from a policy's decision to the kernel": ("rate asked for",),
    "a rate, from a configuration to the kernel": ("rate configured",),
}


@dataclass(frozen=True, slots=True)
class Walk:
    """The modules of a walk in the order of their calls, and the functions by which each was entered."""

    way: tuple[str, ...]
    entered: dict[str, tuple[str, ...]]

    @property
    def entries(self) -> int:
        """Return the number of functions by which a module was entered from another."""
        return sum(len(functions) for functions in self.entered.values())

    @property
    def returns(self) -> int:
        """Return how often the way enters a module that it has been in before."""
        return len(self.way) - len(set(self.way))


def joined(parts: Sequence[dict[str, Any]]) -> Walk:
    """Join recordings, the consecutive parts of one walk."""
    way: list[str] = []
    entered: dict[str, list[str]] = {}
    for part in parts:
        for module in part["stack"]:
            if way[-1:] != [module]:
                way.append(module)
        for _, module, function in part["steps"]:
            if function == "<module>":
                continue
            functions = entered.setdefault(module, [])
            if function not in functions:
                functions.append(function)
    return Walk(tuple(way), {module: tuple(functions) for module, functions in entered.items()})


def recorded(checkout: Path) -> dict[str, Walk]:
    """Record the walks through the modules of a checkout. SystemExit where one does not reach its end
    in time.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "sitecustomize.py").write_text(HOOK.read_text())
        (folder / "configuration.yaml").write_text(CONFIGURATION)
        (folder / "jobs.yaml").write_text(JOBS)
        (folder / SCRIPT).write_text("import time\n\nimport torch  # its gate\n\ntime.sleep(600)\n")
        ends = [end for parts in WALKS.values() for end in parts]
        with _testbed(checkout, folder):
            _command(checkout, folder, "submit", "--name", NAME, "--detach", "jobs.yaml")
            deadline = time.monotonic() + LIMIT_S
            while lacking := [end for end in ends if not list(folder.glob(f"*-{end}.json"))]:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{checkout}: not reached within {LIMIT_S:g} s: {', '.join(lacking)}")
                time.sleep(0.1)
        read = {end: json.loads(next(folder.glob(f"*-{end}.json")).read_text()) for end in ends}
        return {walk: joined([read[end] for end in parts]) for walk, parts in WALKS.items()}


@contextmanager
def _testbed(checkout: Path, folder: Path) -> Iterator[None]:
    _command(checkout, folder, "up", "--name", NAME, "--detach", "--config", "configuration.yaml")
    try:
        yield
    finally:
        _command(checkout, folder, "down", "--name", NAME)


def _command(checkout: Path, folder: Path, *words: str) -> None:
    variables = {
        "WALKS_ROOT": f"{checkout}/",
        "WALKS_INTO": str(folder),
        "WALKS_SCRIPT": SCRIPT,
    }
    ended = subprocess.run(
        [str(checkout / ".venv/bin/python"), "-m", "testbed", *words],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONPATH": f"{folder}:{checkout}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{checkout}: testbed {' '.join(words)}: {(ended.stdout + ended.stderr)[-2000:]}")


def _commit(checkout: Path) -> str:
    argv = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def _again(walk: Walk) -> str:
    """Say how many of its modules repeat an earlier one, if any."""
    if not walk.returns:
        return ""
    return f", {walk.returns} of which {'repeats' if walk.returns == 1 else 'repeat'} an earlier one"


def told(walks: dict[str, dict[str, Walk]]) -> str:
    """Return the walks of each commit as Markdown."""
    lines = []
    for name in WALKS:
        lines += [f"**{name[0].upper()}{name[1:]}.**", ""]
        for commit, taken in walks.items():
            walk = taken[name]
            most = max(walk.entered, key=lambda module: len(walk.entered[module]))
            lines += [
                *textwrap.wrap(
                    f"At commit {commit} the chain of calls has {len(walk.way)} modules{_again(walk)}. While "
                    f"it was recorded, {walk.entries} functions of {len(walk.entered)} modules were called "
                    f"from another module, at most {len(walk.entered[most])} of one module (`{most}`).",
                    WIDTH,
                ),
                "",
                "```",
                *textwrap.wrap(" > ".join(walk.way), WIDTH, subsequent_indent="    ", break_on_hyphens=False),
                "```",
                "",
            ]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Record the walks in each checkout, and print or publish them."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.walks")
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT], metavar="CHECKOUT")
    parser.add_argument("--entries", action="store_true", help="print each module's entries, too")
    parser.add_argument("--into", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    walks = {_commit(checkout): recorded(checkout.resolve()) for checkout in options.checkouts}
    text = told(walks)
    print(text)
    if options.entries:
        for commit, taken in walks.items():
            for name, walk in taken.items():
                print(f"{commit}: {name}")
                for module, functions in walk.entered.items():
                    print(f"  {module}: {' '.join(functions)}")
    if options.into:
        options.into.write_text(replaced(options.into.read_text(), "walks", f"{text}{depends('walks')}"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
