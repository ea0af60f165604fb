"""Plant bugs in the programs, one at a time in a copy of the tree, and report which tests find each.

`python -m tests.bench.mutations [--kind xdp|links|p4|endpoint|window|python] [--only TEXT] [--json FILE]
[--into FILE]`; with `--from FILE` (repeatable) the findings of earlier runs are put together, and nothing is
run. Every kind of test of a program is run, even after one has found the bug. The exit code is 1 if no test
found a bug. P4's bugs need p4c and simple_switch; without these they are skipped, with a message.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.at_once import at_once
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table
from tests.mutants.mutation import Kind, Mutation
from tests.mutants.table import MUTATIONS

COPIED = (
    "bpf",
    "controller",
    "p4",
    "testbed",
    "tests",
    "workloads",
    "scripts",
    "README.md",
    "pyproject.toml",
    "setup.py",
)
MARK = "findings: "
LIMIT_S = 600.0
REQUIRED = "TESTBED_REQUIRE"  # a variable of tests/conftest.py
_FINDINGS = "import json; from tests.privileged{}; print('findings: ' + json.dumps({}))"
_XDP = _FINDINGS.format(".packets import findings", "findings('mutation_run')")
_LINKS = _FINDINGS.format(" import mutation_links", "mutation_links.findings()")
_P4 = _FINDINGS.format(" import mutation_p4", "mutation_p4.findings()")


class InvalidError(Exception):
    """A mutated program does not compile or load, so it is no bug that a test could find."""


@contextmanager
def copy_of_tree() -> Iterator[Path]:
    """Make a folder with everything that the tests of programs need."""
    with tempfile.TemporaryDirectory(prefix="optinc-mutant-") as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, root / name)
        (root / ".venv").symlink_to(ROOT / ".venv")  # privileged tests require the project's environment
        yield root


def _said(root: Path, argv: list[str]) -> str:
    ended = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or not lines:
        raise InvalidError(f"exit code {ended.returncode}: {(ended.stdout + ended.stderr)[-600:]}")
    return lines[-1].removeprefix(MARK)


def _by_script(script: str, root: Path) -> dict[str, str]:
    return dict(json.loads(_said(root, [sys.executable, "-c", script])))


def _build(root: Path) -> None:
    """Compile the endpoint in the copy."""
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise InvalidError(built.stderr[-600:])


def _p4(root: Path) -> dict[str, str]:
    """Run the tests of P4: the program on BMv2, the switch's own tests, ticks on a running network, and the
    frame of a tick.
    """
    return {
        **_by_script(_P4, root),
        "switch": _failed(
            root, "tests/privileged/test_bmv2_switch.py", "-k", "knows_its_hosts or gets_an_empty"
        ),
        "live": _failed(root, "tests/privileged/test_places.py", "-k", "daemon"),
        "frame": _failed(root, "tests/unit/test_ticks.py"),
    }


def _endpoint(root: Path) -> dict[str, str]:
    _build(root)
    return {
        name: _failed(root, f"tests/unit/{file}.py")
        for name, file in (
            ("values", "test_endpoint"),
            ("protocol", "test_endpoint_protocol"),
            ("trees", "test_endpoint_trees"),
            ("overtaken", "test_endpoint_overtaken"),
            ("gathering", "test_endpoint_gather"),
            ("questions", "test_endpoint_questions"),
            ("sends", "test_sends"),
        )
    }


def _window(root: Path) -> dict[str, str]:
    _build(root)
    return {
        name: _failed(root, "tests/unit/test_window.py", "-k", which)
        for name, which in (("steps", "not queue"), ("queues", "queue"))
    }


def _python(root: Path) -> dict[str, str]:
    return {
        name: _failed(root, *(f"tests/unit/{file}.py" for file in files))
        for name, files in (
            ("rights", ("test_runtime", "test_rpc", "test_queue_scheduler")),
            ("records", ("test_recorder",)),
            ("model", ("test_milp_literal",)),
        )
    }


def _failed(root: Path, *tests: str) -> str:
    """Return the first test that fails in the copy, or ""."""
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    environ = {**os.environ, REQUIRED: "all"}  # turn skips into failures: a skipped test finds nothing
    ended = subprocess.run(
        argv, cwd=root, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if ended.returncode and not lines:
        raise InvalidError(ended.stdout[-600:])
    return lines[0].partition("::")[2] if lines else ""


TRY: dict[Kind, Callable[[Path], dict[str, str]]] = {
    Kind.XDP: partial(_by_script, _XDP),
    Kind.LINKS: partial(_by_script, _LINKS),
    Kind.P4: _p4,
    Kind.ENDPOINT: _endpoint,
    Kind.WINDOW: _window,
    Kind.PYTHON: _python,
}


def tried(mutation: Mutation | None, kind: Kind) -> dict[str, Any]:
    """Run each kind of test on the bug (None: on the unchanged programs), and return their findings."""
    began = time.monotonic()
    with copy_of_tree() as root:
        if mutation:
            mutation.plant(root)
        try:
            by_test, invalid = TRY[kind](root), ""
        except InvalidError as error:
            by_test, invalid = {}, str(error)
    described = (
        {**asdict(mutation), "kind": kind.value}
        if mutation
        else {"kind": kind.value, "name": "nothing", "file": "-"}
    )
    row = {**described, "found": by_test, "invalid": invalid, "seconds": time.monotonic() - began}
    caught = ", ".join(name for name, line in by_test.items() if line)
    print(
        f"{row['file']}: {row['name']}: {caught or ('INVALID: ' + invalid if invalid else 'nothing')}",
        file=sys.stderr,
        flush=True,
    )
    return row


def summary(figures: dict[str, Any]) -> str:
    """Return how many bugs each kind of test found, and a row for each bug."""
    rows, kinds = [], {}
    for row in figures["mutations"]:
        caught = [name for name, line in row["found"].items() if line]
        rows.append([f"`{row['file']}`: {row['name']}", ", ".join(caught) or "**nothing**"])
        kinds.setdefault(row["kind"], Counter({"": 0, **dict.fromkeys(row["found"], 0)})).update(
            ["", *caught]
        )
    totals = [
        f"Of the {counts['']} bugs of the program {kind}, tests of these kinds found so many bugs: "
        + ", ".join(f"*{name}* {counts[name]}" for name in counts if name)
        + "."
        for kind, counts in kinds.items()
    ]
    count = sum(1 for row in figures["mutations"] if any(row["found"].values()))
    left_out = [
        f"{kind}: left out, because there was no {what}." for kind, what in figures["left_out"].items()
    ]
    lines = [
        f"{count} of {len(rows)} bugs were found. Several kinds of test may find one bug.",
        *totals,
        *left_out,
    ]
    return f"{' '.join(lines)}\n\n{table(['bug', 'found by'], rows)}"


def gathered(files: list[Path]) -> dict[str, Any]:
    """Put together the figures of earlier runs, as if of one."""
    runs = [json.loads(file.read_text()) for file in files]
    tried_kinds = {row["kind"] for run in runs for row in run["mutations"]}
    left_out = {
        kind: what for run in runs for kind, what in run["left_out"].items() if kind not in tried_kinds
    }
    return {
        "host": runs[-1]["host"],
        "left_out": left_out,
        "mutations": [row for run in runs for row in run["mutations"]],
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.mutations", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--kind", choices=[kind.name.lower() for kind in Kind], action="append")
    parser.add_argument("--only", default="", metavar="TEXT", help="bugs whose file or name has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the table into this document, too")
    parser.add_argument(
        "--from",
        dest="files",
        type=Path,
        action="append",
        metavar="FILE",
        help="figures of runs before; none is made",
    )
    arguments = parser.parse_args(argv)
    figures = gathered(arguments.files) if arguments.files else planted(arguments)
    if figures is None:
        return 2
    publish("mutations", summary(figures), figures, arguments.json, arguments.into)
    return int(any(row["invalid"] or not any(row["found"].values()) for row in figures["mutations"]))


def planted(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Make a run, and return its figures; None, with a message, where tests fail without a bug."""
    kinds = [kind for kind in Kind if not arguments.kind or kind.name.lower() in arguments.kind]
    missing = [name for name in ("simple_switch", "p4c-bm2-ss") if shutil.which(name) is None]
    left_out = {Kind.P4.value: " and no ".join(missing)} if Kind.P4 in kinds and missing else {}
    kinds = [kind for kind in kinds if kind.value not in left_out]
    chosen = [bug for bug in MUTATIONS if bug.kind in kinds and arguments.only in f"{bug.file}: {bug.name}"]
    for kind in dict.fromkeys(bug.kind for bug in chosen):
        whole = tried(None, kind)
        if whole["invalid"] or any(whole["found"].values()):
            print(f"{kind.value}: the tests fail without a bug: {whole['invalid'] or whole['found']}")
            return None
    figures: dict[str, Any] = {"host": facts(), "left_out": left_out, "mutations": []}

    def keep(bug: Mutation) -> None:
        """Try one bug, and write all findings so far, since the whole run takes long."""
        row = tried(bug, bug.kind)
        with writing:
            figures["mutations"].append(row)
            figures["mutations"].sort(key=lambda each: order[each["file"], each["name"]])
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(figures, indent=2) + "\n")

    writing, order = threading.Lock(), {(bug.file, bug.name): at for at, bug in enumerate(chosen)}
    at_once({at: partial(keep, bug) for at, bug in enumerate(chosen)}, os.cpu_count())
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
