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

TABLES = list(provenance.tables(provenance.documents()))
HOST = {"commit": "0" * 40, "cores": 2, "processor": "Some", "memory_bytes": 2**30, "kernel": "6.1"}


@pytest.fixture
def history() -> None:
    if reason := provenance.lacks_history():
        lacking("history", f"which commits exist cannot be said: {reason}")


def test_each_table_stands_once_and_its_code_is_known() -> None:
    assert sorted(table.name for table in TABLES) == sorted(provenance.FOLDERS)


@pytest.mark.parametrize("name", provenance.FOLDERS)
def test_the_code_of_a_table_exists(name: str) -> None:
    assert [path for path in provenance.FOLDERS[name] if not (provenance.ROOT / path).exists()] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_names_a_commit_and_its_code(table: provenance.Table) -> None:
    assert table.commit is not None
    assert provenance.depends(table.name) in " ".join(table.text.split())


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("path", provenance.documents(), ids=lambda path: path.stem)
def test_commits_that_a_document_names_exist(path: Path) -> None:
    assert [commit for commit in provenance.cited(path) if not provenance.exists(commit)] == []


def test_what_is_generated_names_both() -> None:
    said = measured_on(HOST, "clusters")
    assert "commit 000000000000." in said
    assert said.endswith("Its code: `testbed/systems/aleph`.")


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
