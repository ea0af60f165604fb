"""The wheel and the source distribution: they build, hold what the testbed needs, and work in an environment
without the checkout; the notes of a release.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from scripts import release
from testbed.errors import HostError
from testbed.plugins.papers import NONE

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("README.md", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE")
FOLDERS = ("testbed", "controller", "workloads", "reproductions", "bpf", "p4", "wireshark", "scripts")
PAPERS = sorted(folder.parent.name for folder in (ROOT / "reproductions").glob("*/__init__.py"))
LIMIT_S = 120.0


def ran(*argv: str | Path, cwd: Path) -> str:
    ended = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, made of a copy, so that nothing is left in the checkout."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    ran(sys.executable, "setup.py", "-q", "sdist", cwd=copy)
    (made,) = (copy / "dist").glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source distribution: it lacks nothing where that lacks nothing. Without a network."""
    folder = tmp_path_factory.mktemp("distribution")
    shutil.unpack_archive(distribution, folder)
    (copy,) = folder.iterdir()
    build = (
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        "dist",
        ".",
    )
    ran(sys.executable, *build, cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_the_data_planes_the_endpoint_and_nothing_of_the_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    shared = {name.partition("/data/share/optinc/")[2] for name in names if "/data/share/optinc/" in name}
    for folder in ("bpf", "p4", "wireshark"):
        files = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert files <= shared, folder
    assert any(name.startswith("workloads/_endpoint.") for name in names)
    assert {"testbed/webpage/assets/page.css", "testbed/report/report.html"} <= names
    # compiled for the torch of whoever installs it
    sources = ("backend.cpp", "works.hpp", "line.hpp", "wire.h")
    assert {f"workloads/native/{name}" for name in sources} <= names
    assert not any(name.startswith("workloads/_backend.") for name in names)
    # compiled where the figures of ALEPH's data plane are run
    assert {f"reproductions/aleph/micro/{name}" for name in ("micro.c", "micro.h", "traffic.c")} <= names
    assert "testbed/py.typed" in names or not (ROOT / "testbed/py.typed").exists()
    assert not [name for name in names if name.startswith(("tests/", "scripts/"))]
    required = [line.split()[1] for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert any(line.startswith("torch>=") or line.startswith("torch<") for line in required)
    assert not any(line.startswith(("pytest", "mypy")) for line in required)


def test_an_installed_copy_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    ran(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    installed = ("-m", "pip", f"--python={python}", "install", "--no-deps", "--no-index", wheel)
    ran(sys.executable, *installed, cwd=tmp_path)
    # the packages that it requires are those of the project's environment, but not that environment's link to
    # the checkout
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (site / "required.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = (
        "import testbed\n"
        "from testbed.client import environment\n"
        "from testbed.dataplanes.bmv2.program import compiled, verdict_names\n"
        "from testbed.dataplanes.xdp.layout import BPF_DIR\n"
        "from workloads import endpoint\n"
        "assert (BPF_DIR / 'programs.c').exists(), BPF_DIR\n"
        "assert verdict_names() and endpoint.library()\n"
        "assert not environment.is_checkout()\n"
        "import torch.distributed as d; assert 'inc' in d.Backend.backend_list\n"
        "print(testbed.__file__, endpoint.__file__, BPF_DIR, compiled('wide', 1500), sep='\\n')"
    )
    for path in ran(python, "-c", code, cwd=tmp_path).splitlines():
        assert path.startswith(str(tmp_path)), path
    testbed = tmp_path / "venv/bin/testbed"
    cache = tmp_path / "cache" / "optinc"  # of its user, who compiled the same sources before
    cache.mkdir(parents=True)
    for compiled in (ROOT / "workloads").glob("_backend.*.so"):
        shutil.copy(compiled, cache)
    checked = subprocess.run(
        [testbed, "doctor"],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(cache.parent)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    for part in ("environment", "torch", "os-ken"):
        assert re.search(rf"^{part} +works ", checked.stdout, re.MULTILINE), checked.stdout + checked.stderr
    assert "usage: testbed run" in ran(testbed, "run", "--help", cwd=tmp_path)
    assert "fig10.json fig10.png" in ran(testbed, "reproduce", "luwu", "fig10", cwd=tmp_path)
    assert (tmp_path / "out" / "luwu" / "fig10.png").exists()
    systems = ran(testbed, "systems", cwd=tmp_path)
    assert all(f"figures of {paper}: " in systems for paper in PAPERS if paper != "rotor")  # no system's
    listed = " ".join(ran(testbed, "reproduce", "--help", cwd=tmp_path).split())
    assert all(f"{paper} has " in listed for paper in PAPERS)
    shutil.rmtree(site / "reproductions")
    ended = subprocess.run(
        [testbed, "reproduce", "luwu", "fig10"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (HostError.exit_code, "")
    assert ended.stderr == f"testbed reproduce: {NONE}\n"
    ran(testbed, "systems", cwd=tmp_path)  # the core is whole without them


VERSIONED = {
    "setup.py": 'setup(\n    version="1.2.0",\n)\n',
    "CITATION.cff": "version: 1.2.0\n",
    "CHANGELOG.md": "# Changes\n\n## 1.2.0, 2026-01-31\n\nBetter.\n\n## 1.1.0, 2026-01-01\n\nGood.\n",
}


def test_a_release_has_its_section_of_the_changelog(tmp_path: Path) -> None:
    for name, text in VERSIONED.items():
        (tmp_path / name).write_text(text)
    assert release.notes(tmp_path, "v1.2.0") == "Better.\n"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("setup.py", 'setup(\n    version="1.1.0",\n)\n', "setup.py: version 1.1.0, and the tag is v1.2.0"),
        ("CITATION.cff", "title: t\n", "CITATION.cff: version none, and the tag is v1.2.0"),
        ("CHANGELOG.md", "## 1.2.0, unreleased\n", "no section `1.2.0, YEAR-MONTH-DAY`"),
    ],
)
def test_a_release_whose_files_do_not_agree_is_none(tmp_path: Path, name: str, text: str, why: str) -> None:
    for each, content in (VERSIONED | {name: text}).items():
        (tmp_path / each).write_text(content)
    with pytest.raises(ValueError, match=re.escape(why)):
        release.notes(tmp_path, "v1.2.0")


def test_the_tree_is_of_one_version() -> None:
    with pytest.raises(ValueError, match=r"no section `0\.1\.0.*there are: 0\.1\.0, unreleased$"):
        release.notes(ROOT, "v0.1.0")
