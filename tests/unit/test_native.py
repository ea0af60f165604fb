"""Compiled libraries: a digest of their sources tells apart those that are of others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import setup
from testbed import native
from testbed.errors import HostError
from testbed.systems.trio.xdp import timers
from tests.limits import CALL_S
from workloads import endpoint
from workloads.luwu import nic
from workloads.luwu.errors import LuwuError

ROOT = native.CHECKOUT


@pytest.mark.parametrize("library", native.LIBRARIES, ids=lambda library: library.module)
def test_what_was_compiled_is_of_the_sources_that_lie_here(library: native.Library) -> None:
    assert library.why_stale(library.path) is None
    assert library.why_stale(ROOT / "README.md") == (
        "README.md was compiled from other sources; run: sudo make setup"
    )
    assert library.why_stale(ROOT / "none.so") == (
        "none.so does not load (No such file or directory); run: sudo make setup"
    )


def test_all_that_is_included_is_a_source() -> None:
    for library in native.LIBRARIES:
        sources = library.files((*library.compiled, *library.included))
        assert {*sources} <= {*setup.library_sources()}
        for source in sources:
            for line in source.read_text().splitlines():
                if line.startswith('#include "'):
                    assert (source.parent / line.split('"')[1]).resolve() in sources, (source, line)


def test_an_installed_copy_has_no_sources_to_ask(tmp_path: Path) -> None:
    file = tmp_path / "made.so"
    file.write_bytes(b"of sources that are elsewhere")
    assert native.ENDPOINT.digest(tmp_path) is None
    assert native.ENDPOINT.is_current(file, tmp_path)


def test_who_opens_a_stale_one_is_told_how_to_rebuild_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = tmp_path / "_endpoint.so"
    digests = [str(library.digest()).encode() for library in native.LIBRARIES]
    content = b"".join(library.path.read_bytes() for library in native.LIBRARIES)
    for digest in digests:
        content = content.replace(digest, b"0" * len(digest))
    stale.write_bytes(content)
    says = "_endpoint.so was compiled from other sources; run: sudo make setup"
    for module, error in ((endpoint, RuntimeError), (nic, LuwuError), (timers, HostError)):
        monkeypatch.setattr(module, "_LIBRARY", stale)
        with pytest.raises(error, match=says):
            getattr(module.library, "__wrapped__", module.library)()


def test_set_up_compiles_a_stale_one_again_whatever_its_time_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("setup.py", "README.md", "scripts", "bpf", "p4", "wireshark", "testbed", "workloads"):
        source, target = ROOT / name, tmp_path / name
        ignored = shutil.ignore_patterns("__pycache__", "_backend*")
        shutil.copytree(source, target, ignore=ignored) if source.is_dir() else shutil.copy(source, target)
    source, header = (tmp_path / "workloads" / "native" / name for name in ("lanes.c", "sends_meaning.h"))
    for changed in (source, header):
        changed.write_text(changed.read_text() + "/* changed */\n")
        os.utime(changed, (0, 0))  # as old as can be
    files = [tmp_path / library.path.relative_to(ROOT) for library in native.LIBRARIES]
    both = list(zip(native.LIBRARIES, files, strict=True))
    assert not any(library.is_current(file, tmp_path) for library, file in both)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=CALL_S, env={**os.environ, "PYTHONPATH": ""})
    assert all(library.is_current(file, tmp_path) for library, file in both)
    monkeypatch.setattr(native, "CHECKOUT", tmp_path)
    assert setup.libraries_are_current()
    files[0].write_bytes(b"of another checkout")
    assert not setup.libraries_are_current()
