"""Every generated table names a commit that exists, and code that exists; every commit that documents name
exists.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bench import provenance
from tests.bench.tables import measured_on
from tests.conftest import lacking
from tests.limits import CALL_S
from tests.sources import assert_no_faults, line_at

TABLES = list(provenance.tables(provenance.documents()))
HOST = {"commit": "0" * 40, "cores": 2, "processor": "Some", "memory_bytes": 2**30, "kernel": "6.1"}


@pytest.fixture
def history() -> None:
    if reason := provenance.lacks_history():
        lacking("history", f"which commits exist cannot be said: {reason}")


def test_each_table_stands_once_and_its_code_is_known() -> None:
    assert sorted(table.name for table in TABLES) == sorted(provenance.FOLDERS)


def test_the_code_of_a_table_exists() -> None:
    paths = {(name, path) for name, paths in provenance.FOLDERS.items() for path in paths}
    assert paths
    assert sorted(pair for pair in paths if not (provenance.ROOT / pair[1]).exists()) == []


def anonymous(table: provenance.Table) -> list[str]:
    """Return the faults of a table that does not name its commit, or its code."""
    line = line_at(table.document.read_text(), table.document.read_text().index(table.text))
    faults = [] if table.commit is not None else [f"{line}: {table.name} names no commit"]
    sentence = provenance.depends(table.name)
    if sentence not in " ".join(table.text.split()):
        faults.append(f"{line}: {table.name} lacks {sentence!r}")
    return faults


def test_a_table_names_a_commit_and_its_code() -> None:
    documents = sorted({table.document for table in TABLES})
    assert_no_faults(
        documents,
        lambda path: [fault for table in TABLES if table.document == path for fault in anonymous(table)],
    )


def test_a_table_that_names_neither_is_seen(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    named = f"Measured on it, commit {'0' * 12}. {provenance.depends('fuzz')}\n"
    document.write_text(
        f"<!-- bench fuzz -->\n{named}<!-- end -->\n<!-- bench engines -->\n| a |\n<!-- end -->\n"
    )
    assert [anonymous(table) for table in provenance.tables([document])] == [
        [],
        ["5: engines names no commit", f"5: engines lacks {provenance.depends('engines')!r}"],
    ]


def unknown_commits(path: Path, root: Path = provenance.ROOT) -> list[str]:
    """Return the faults of a document that names commits which a repository does not have."""
    text = path.read_text()
    return [
        f"{line_at(text, text.index(commit))}: no commit {commit}"
        for commit in dict.fromkeys(provenance.cited(path))
        if not provenance.exists(commit, root)
    ]


@pytest.mark.usefixtures("history")
def test_commits_that_a_document_names_exist() -> None:
    assert_no_faults(provenance.documents(), unknown_commits)


def test_a_commit_that_does_not_exist_is_seen(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    head, document = git(tmp_path, "rev-parse", "HEAD"), tmp_path / "page.md"
    document.write_text(f"Commit {head[:12]},\nand commit {'0' * 12}.\n")
    assert unknown_commits(document, tmp_path) == [f"2: no commit {'0' * 12}"]


def test_what_is_generated_names_both() -> None:
    said = measured_on(HOST, "clusters")
    assert "commit 000000000000." in said
    assert said.endswith("The numbers depend on this code: `testbed/systems/aleph`.")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True, timeout=CALL_S
    ).stdout.strip()


def test_ages_count_commits_that_touch_the_code(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for number, name in enumerate(("code", "other", "code", "other")):
        (tmp_path / name).write_text(str(number))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", name)
    first = git(tmp_path, "rev-list", "--reverse", "HEAD").split()[0]
    assert provenance.age(first, ["code"], tmp_path) == provenance.Age(3, 1)
    assert provenance.age(first, ["none"], tmp_path) == provenance.Age(3, 0)
    assert provenance.Age(3, 1).is_old
    assert not provenance.Age(provenance.OLD, 0).is_old
    assert provenance.Age(provenance.OLD + 1, 0).is_old
    assert provenance.exists(first, tmp_path)
    assert not provenance.exists("1e2d3118b63c", tmp_path)
    assert provenance.lacks_history(tmp_path) is None
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path}", str(shallow))
    assert provenance.lacks_history(shallow) == "a shallow clone"
