"""The quick check: types of the changed files, and the tests of pure code. `make quick` runs it after ruff.

A file of tests/unit is pure judging by its imports. Neither it nor a module of tests that it imports may
import a library in WORLD, anywhere in the file; no module that they load may import one in HEAVY. Such tests
only compute: they start no process or thread, open no socket, call no C of ours, and load no library that
takes seconds. Their property tests use PROFILE, with a tenth of hypothesis' examples. Omitted are tests
marked slow, and tests that took half a second of CPU time in the last `python -m tests.quick --record`, which
writes COSTLY.

`python -m tests.quick --left-out` prints the other files, each with a library and the file that imports it,
and the tests in COSTLY.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests import costs
from tests.imports import import_statements
from tests.limits import CALL_S
from tests.sources import ROOT

UNIT = "tests/unit"
OURS = ("controller", "examples", "reproductions", "scripts", "testbed", "tests", "workloads")
MAIN = ("main", "origin/main")
"""The branches that a change is compared with; the first that exists is used."""
PROFILE = "quick"
COSTLY = ROOT / UNIT / "costly.json"
LIMIT_S = 900.0  # for each of the two programs, even on a slow machine
HEAVY = frozenset(
    re.findall(
        r"\w+",
        """bcc bm_runtime dash eventlet flask matplotlib mininet os_ken pandas plotly ray ryu scapy scipy
        sklearn sswitch_runtime thrift torch""",
    )
)
WORLD = HEAVY | frozenset(
    re.findall(
        r"\w+",
        """asyncio ctypes fcntl mmap multiprocessing psutil pty resource select selectors signal
        socket subprocess termios threading""",
    )
)


# ---------------------------------------------------------------- pure tests


def pure_tests(root: Path = ROOT) -> list[Path]:
    return [path for path in unit_tests(root) if impurity(path, root) is None]


def unit_tests(root: Path = ROOT) -> list[Path]:
    return sorted((root / UNIT).glob("test_*.py"))


def impurity(test: Path, root: Path = ROOT) -> tuple[str, Path] | None:
    """Return a library because of which a test file is not pure, and the file that imports it; None if
    it is pure.
    """
    pending, seen = [test], {test}
    while pending:
        file = pending.pop()
        imported = _imported(file, root)
        if imported.libraries:
            return imported.libraries[0], file
        pending += imported.files - seen
        seen |= imported.files
    return None


@dataclass(frozen=True, slots=True)
class Imported:
    """The libraries because of which one file is not pure, and the project's files that its imports run."""

    libraries: tuple[str, ...]
    files: frozenset[Path]


@cache
def _imported(file: Path, root: Path) -> Imported:
    is_test = file.is_relative_to(root / "tests")
    names = set()
    for statement, deferred in import_statements(ast.parse(file.read_text(), str(file))):
        if deferred and not is_test:
            continue
        aliases = [alias.name for alias in statement.names]
        if isinstance(statement, ast.ImportFrom):  # each alias may be a module
            aliases = [str(statement.module), *(f"{statement.module}.{alias}" for alias in aliases)]
        names.update(aliases)
    libraries = {name.split(".")[0] for name in names} & (WORLD if is_test else HEAVY)
    return Imported(tuple(sorted(libraries)), frozenset(run for name in names for run in _files(name, root)))


@cache
def _files(name: str, root: Path) -> tuple[Path, ...]:
    """Return the project's files that the import of a name runs: the module's, and those of its packages."""
    parts = name.split(".")
    if parts[0] not in OURS:
        return ()
    packages = [root.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    return tuple(file for file in (*packages, root.joinpath(*parts).with_suffix(".py")) if file.is_file())


# ---------------------------------------------------------------- what changed


def changed(root: Path = ROOT) -> list[str] | None:
    """Return the files that are new or differ from the main branch at the point where this branch left it;
    None without git or a main branch.
    """
    for branch in MAIN:
        base = _git(root, "merge-base", "HEAD", branch)
        if base:
            differing = _git(root, "diff", "--name-only", "--diff-filter=d", base[0])
            untracked = _git(root, "ls-files", "--others", "--exclude-standard")
            return None if differing is None or untracked is None else sorted({*differing, *untracked})
    return None


def _git(root: Path, *words: str) -> list[str] | None:
    """Return the lines that git prints; None where it fails."""
    try:
        ended = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=CALL_S, check=False
        )
    except FileNotFoundError:
        return None
    return ended.stdout.splitlines() if ended.returncode == 0 else None


def to_type_check(sources: Sequence[str], names: Sequence[str] | None) -> list[str]:
    """Return what mypy is to check: the changed modules among `sources` (folders and files), or all of these
    where the changes are not known.
    """
    if names is None:
        return list(sources)
    return [
        name
        for name in names
        if name.endswith(".py") and any(Path(name).is_relative_to(source) for source in sources)
    ]


# ---------------------------------------------------------------- the command


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description="types, and pure tests")
    parser.add_argument("sources", nargs="*", help="what mypy checks where it changed: folders and files")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--left-out", action="store_true", help="print the tests left out, and why")
    other.add_argument("--record", action="store_true", help="run all pure tests, and write which are costly")
    arguments = parser.parse_args(argv)
    if arguments.left_out:
        print(*left_out(), sep="\n")
        return 0
    tests = [str(test.relative_to(ROOT)) for test in pure_tests()]
    options = ("-q", "-p", "tests.costs", "-m", "not slow", f"--hypothesis-profile={PROFILE}")
    if arguments.record:
        return _run("pytest", *options, f"--costs={COSTLY}", *tests)
    types = to_type_check(arguments.sources, changed())
    print(f"types: mypy --strict, {len(types)} that changed", flush=True)
    codes = [_run("mypy", "--strict", *types)] if types else []
    print(f"tests: {len(tests)} files that are pure", flush=True)
    codes.append(_run("pytest", *options, f"--but={COSTLY}", "-n", "auto", "--dist", "loadfile", *tests))
    return max(codes)


def left_out() -> list[str]:
    """Return a line for each file that is not pure, and for each costly test."""
    reasons = {test: impurity(test) for test in unit_tests()}
    return [
        f"{test.relative_to(ROOT)}: {reason[0]} in {reason[1].relative_to(ROOT)}"
        for test, reason in reasons.items()
        if reason
    ] + [f"{test}: {seconds:.1f} s" for test, seconds in costs.read(COSTLY).items()]


def _run(module: str, *words: str) -> int:
    argv = [sys.executable, "-m", module, *words]
    return subprocess.run(argv, cwd=ROOT, timeout=LIMIT_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
