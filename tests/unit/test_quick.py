"""The quick check: what is pure, what changed, and that `make quick` is what its document says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests import costs, quick
from tests import examples as numbers
from tests.limits import CALL_S
from tests.quick import changed, impurity, pure_tests, to_type_check, unit_tests
from tests.sources import ROOT

FILES = {
    "testbed/__init__.py": "",
    "testbed/pure.py": "import numpy\ndef f():\n    import torch\n",
    "testbed/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
    "testbed/starting.py": "import subprocess\n",
    "testbed/drawn/__init__.py": "from testbed.drawn.chart import plot\n",
    "testbed/drawn/chart.py": "import matplotlib.pyplot\n",
    "testbed/drawn/words.py": "",
    "tests/unit/world.py": "from testbed import pure\n",
    "tests/unit/socket_world.py": "import socket\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


THREADS = "def test_it():\n    try:\n        import threading\n    finally:\n        pass"


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("from testbed.pure import f", None),
        ("from testbed import pure, typed, starting", None),  # what tests do not start is not started
        ("from tests.unit.world import pure", None),
        ("import subprocess", ("subprocess", "tests/unit/test_it.py")),
        (THREADS, ("threading", "tests/unit/test_it.py")),
        ("from torch.nn import Linear", ("torch", "tests/unit/test_it.py")),
        ("from tests.unit import socket_world", ("socket", "tests/unit/socket_world.py")),
        ("from tests.unit.socket_world import x", ("socket", "tests/unit/socket_world.py")),
        ("import testbed.drawn.chart", ("matplotlib", "testbed/drawn/chart.py")),
        ("from testbed.drawn.words import x", ("matplotlib", "testbed/drawn/chart.py")),  # by its package
    ],
)
def test_a_file_is_pure_by_its_imports(tree: Path, text: str, because: tuple[str, str] | None) -> None:
    test = tree / "tests/unit/test_it.py"
    test.write_text(text)
    reason = impurity(test, tree)
    assert (reason and (reason[0], str(reason[1].relative_to(tree)))) == because
    assert pure_tests(tree) == ([test] if because is None else [])


def test_files_of_this_checkout_are_told_apart() -> None:
    pure, every = {path.stem for path in pure_tests()}, {path.stem for path in unit_tests()}
    assert {"test_forest", "test_prose", "test_ocs"} <= pure
    assert {"test_native", "test_quick", "test_rpc", "test_waiting"} <= every - pure
    assert len(pure) > len(every) / 3


def test_every_package_that_make_checks_is_ours() -> None:
    """Count as ours what one of them imports through another."""
    (sources,) = re.findall(r"^SOURCES := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    packages = {name for name in sources.split() if (ROOT / name).is_dir()}
    assert packages >= {"testbed", "controller", "workloads", "reproductions", "scripts"}
    assert packages | {"tests"} == {*quick.OURS}


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, timeout=CALL_S)


def test_what_changed_is_since_the_branch_left_the_main_one(tree: Path) -> None:
    assert changed(tree) is None, "no repository"
    git(tree, "init", "-q", "-b", "other")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "first")
    assert changed(tree) is None, "no main branch"
    git(tree, "checkout", "-qb", "main")
    git(tree, "checkout", "-qb", "mine")
    assert changed(tree) == []
    (tree / "testbed/pure.py").write_text("")
    git(tree, "commit", "-qam", "second")
    git(tree, "checkout", "-q", "main")
    (tree / "testbed/typed.py").write_text("")
    git(tree, "commit", "-qam", "somebody else's")
    git(tree, "checkout", "-q", "mine")
    (tree / "testbed/starting.py").write_text("")
    (tree / "testbed/drawn/words.py").unlink()
    (tree / "new.py").write_text("")
    assert changed(tree) == ["new.py", "testbed/pure.py", "testbed/starting.py"]


def test_types_are_checked_of_changed_sources_or_of_all() -> None:
    sources = ("testbed", "setup.py")
    names = ["docs/a.py", "setup.py", "testbed/a.py", "testbed/a.yaml", "testbeds/a.py"]
    assert to_type_check(sources, names) == ["setup.py", "testbed/a.py"]
    assert to_type_check(sources, []) == []
    assert to_type_check(sources, None) == list(sources)


@pytest.mark.parametrize("fails", ["mypy", "pytest", None])
def test_either_program_fails_the_check(monkeypatch: pytest.MonkeyPatch, fails: str | None) -> None:
    ran = []

    def run(module: str, *words: str) -> int:
        ran.append((module, words))
        return int(module == fails)

    monkeypatch.setattr(quick, "_run", run)
    monkeypatch.setattr(quick, "changed", lambda: ["testbed/run.py"])
    assert quick.main(["testbed", "scripts"]) == int(fails is not None)
    (mypy, types), (pytest_, tests) = ran
    assert (mypy, types) == ("mypy", ("--strict", "testbed/run.py"))
    assert pytest_ == "pytest"
    assert f"--but={quick.COSTLY}" in tests
    assert tests[-len(pure_tests()) :] == tuple(str(path.relative_to(ROOT)) for path in pure_tests())
    assert f"--hypothesis-profile={quick.PROFILE}" in tests
    assert settings.get_profile(quick.PROFILE).max_examples == numbers.OWN / 10


def test_what_is_costly_is_a_pure_test_that_is_there() -> None:
    """A test that was renamed is renamed there, too, by hand or by `python -m tests.quick --record`."""
    for test, seconds in costs.read(quick.COSTLY).items():
        file, *_, name = test.partition("[")[0].split("::")
        assert ROOT / file in pure_tests()
        assert f"def {name}(" in (ROOT / file).read_text(), test
        assert seconds >= costs.COSTLY_S


def test_costs_are_of_the_costly_tests_but_for_checks_of_text(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import subprocess, sys, time\nimport pytest\n"
        "def busy():\n    end = time.process_time() + 1.1\n    while time.process_time() < end: pass\n"
        "def test_fast(): time.sleep(0.2)\n"
        "def test_slow(): busy()\n"
        "@pytest.mark.text\ndef test_text(): busy()\n"
        "def test_child(): subprocess.run([sys.executable, '-c', 'sum(range(10**8))'], timeout=60)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:dash\nmarkers = text: its\n")

    def run(*options: str) -> str:
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.costs", *options, "test_it.py"]
        return subprocess.run(
            argv,
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=True,
        ).stdout

    assert "4 passed" in run("--costs", "it.json")
    costly = costs.read(tmp_path / "it.json")
    assert sorted(costly) == ["test_it.py::test_child", "test_it.py::test_slow"]
    assert "2 passed, 2 deselected" in run("--but", "it.json")


def test_a_test_has_all_of_its_examples_but_in_the_quick_check() -> None:
    at = {}
    before = settings.get_current_profile_name()
    for profile in ("testbed", "gate", quick.PROFILE):
        try:
            settings.load_profile(profile)
            at[profile] = [numbers.examples(count) for count in (400, 60, 5)]
        finally:
            settings.load_profile(before)
    assert at == {"testbed": [400, 60, 5], "gate": [400, 60, 5], quick.PROFILE: [40, 6, 1]}


def test_make_quick_is_what_the_document_says() -> None:
    ended = subprocess.run(
        ["make", "-n", "quick"], cwd=ROOT, capture_output=True, text=True, timeout=CALL_S, check=True
    )
    for command in ("ruff check .", "ruff format --check .", "tests.quick testbed controller workloads"):
        assert f"python -m {command}" in ended.stdout
    said = " ".join((ROOT / "docs/testing.md").read_text().split())
    for words in (
        "`make quick`",
        "-m tests.quick --left-out",
        f"--hypothesis-profile={quick.PROFILE}",
        "`slow`",
    ):
        assert words in said
