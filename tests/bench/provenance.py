"""The commit at which each generated table of the documents was measured, and the code that it depends on.

`python -m tests.bench.provenance` lists the tables whose code has changed since, with the number of commits
that touch it; `--all` lists the others too. The command that measures a table stands above it in the
document.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.host import ROOT

_XDP = ("bpf", "testbed/dataplanes/xdp", "workloads/native", "workloads/endpoint.py")
_TRAINING = (*_XDP, "workloads/backend.py", "workloads/sums.py")
_P4INC = ("testbed/systems/p4inc", "testbed/scheduling")
FOLDERS: Mapping[str, Sequence[str]] = {
    "walks": ("testbed/daemon", "testbed/jobs"),
    "recovery": (*_XDP, "tests/bench/recovery_model.py"),
    "recoveries": (*_XDP, "testbed/systems/aleph"),
    "fuzz": ("bpf", "p4", "testbed/reference_model", "tests/vectors"),
    "mutations": ("bpf", "p4", "tests/mutants", "tests/unit", "tests/vectors"),
    "congestion": _TRAINING,
    "before": _TRAINING,
    "before-trees": _TRAINING,
    "before-compiled": _TRAINING,
    "before-carried": _TRAINING,
    "unshaped": _TRAINING,
    "jumbo": _TRAINING,
    "spent-jumbo": _TRAINING,
    "tried-jumbo": _TRAINING,
    "shaped": (*_TRAINING, "testbed/emulation/links.py"),
    "aggregators": _XDP,
    "engines": ("bpf", "p4", "testbed/dataplanes"),
    "fsdp": _TRAINING,
    "collectives": (*_TRAINING, "workloads/crossovers.py"),
    "tried": _TRAINING,
    "spent": _TRAINING,
    "apart": ("bpf/link_apart.c", "testbed/emulation/user_isolation.py"),
    "limit": ("bpf", "testbed/emulation/links.py"),
    "verdict": ("testbed/telemetry",),
    "happened": ("testbed/telemetry",),
    "verdict-held-out": ("testbed/telemetry",),
    "milp": ("testbed/systems/p4inc/milp", "testbed/systems/p4inc/checker.py"),
    "simulation": ("testbed/systems/p4inc/simulator", "testbed/systems/p4inc/policies"),
    "policies": _P4INC,
    "online": _P4INC,
    "tw_online": _P4INC,
    "clusters": ("testbed/systems/aleph",),
}
"""By table, the folders and files that its numbers depend on."""
ELSEWHERE = {"3f47a9e": "ryujaehun/pytorch-gpu-benchmark", "1e115ff": "facebookresearch/param"}
"""Commits of other repositories that documents name."""
OLD = 100
"""A table measured more commits ago is to be measured again, whether its code changed or not."""
_COMMIT = r"\b[Cc]ommit\s+([0-9a-f]{7,40})\b"


@dataclass(frozen=True, slots=True)
class Table:
    """A generated table: its name, its document, the commit that it names (None: none), and its text."""

    name: str
    document: Path
    commit: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Age:
    """The number of commits since a table was measured, and how many of them touch its code."""

    commits: int
    touching: int

    @property
    def is_old(self) -> bool:
        return self.touching > 0 or self.commits > OLD


def depends(name: str) -> str:
    """Return the sentence about its code that a table contains."""
    return f"The numbers depend on this code: {', '.join(f'`{path}`' for path in FOLDERS[name])}."


def documents() -> list[Path]:
    return sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("**/*.md")])


def tables(paths: Sequence[Path]) -> Iterator[Table]:
    """Yield the generated tables of documents."""
    for path in paths:
        for name, text in re.findall(
            r"^<!-- bench (\S+) -->\n(.*?)^<!-- end -->", path.read_text(), re.DOTALL | re.MULTILINE
        ):
            named = re.findall(r"Measured\s+on[^|]*?" + _COMMIT, text)
            named = named or re.findall("^At " + _COMMIT.removeprefix(r"\b"), text, re.MULTILINE)
            yield Table(name, path, named[-1] if named else None, text)


def cited(path: Path) -> list[str]:
    """Return all commits of this repository that a document names."""
    return [commit for commit in re.findall(_COMMIT, path.read_text()) if commit not in ELSEWHERE]


def exists(commit: str, root: Path = ROOT) -> bool:
    """Return whether a repository has a commit."""
    return _git(root, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def lacks_history(root: Path = ROOT) -> str | None:
    """Return the reason why a repository cannot tell which commits exist, or None."""
    answer = _git(root, "rev-parse", "--is-shallow-repository")
    if answer.returncode:
        return "no git repository"
    return "a shallow clone" if answer.stdout.strip() == "true" else None


def age(commit: str, paths: Sequence[str], root: Path = ROOT) -> Age:
    """Count the commits since a commit, and those that touch `paths`."""
    counts = [_git(root, "rev-list", "--count", f"{commit}..HEAD", *more) for more in ((), ("--", *paths))]
    return Age(*(int(answer.stdout) for answer in counts))


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.provenance", description=__doc__)
    parser.add_argument("--all", action="store_true", help="tables whose code has not changed, too")
    arguments = parser.parse_args(argv)
    if reason := lacks_history():
        print(f"{reason}: which commits exist cannot be said", file=sys.stderr)
        return 1
    for table in tables(documents()):
        where = f"{table.name:17} {table.document.relative_to(ROOT)}"
        if table.commit is None or not exists(table.commit):
            print(f"{where}: commit {table.commit or 'none'}, which is not here")
            continue
        its = age(table.commit, FOLDERS.get(table.name, ()))
        if its.is_old or arguments.all:
            print(f"{where}: {table.commit}, {its.touching} of {its.commits} commits since touch its code")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
