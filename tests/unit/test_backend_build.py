"""The making of the compiled backend: once for a torch and a source, by whoever needs it first, and a clear
line where it cannot be made. The compiler is a script that says what it was asked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.client.environment import CHECKOUT
from tests.processes import alive
from workloads.native.build import NEWEST, OLDEST, made_for

CODE = """
import os, pathlib, sys
from workloads.native import build
build._folders = lambda: tuple(map(pathlib.Path, sys.argv[1:]))
if version := os.environ.get("ANOTHER_TORCH"):
    build._torch_version = lambda: version
if limit_s := os.environ.get("LIMIT_S"):
    build._LIMIT_S = float(limit_s)
try:
    print(build.compiled())
except build.BuildError as error:
    sys.exit(str(error))
"""
GOOD = """#!/bin/sh
echo "$@" >> {calls}
while [ "$1" != -o ]; do shift; done
sleep 0.3
: > "$2"
"""
SLOW = """#!/bin/sh
sleep 60 &
echo $! >> {calls}
wait
"""
BAD = """#!/bin/sh
echo "backend.cpp:1:2: note: see here" >&2
echo "backend.cpp:3:4: fatal error: Backend.hpp: No such file" >&2
exit 1
"""


def compiler(folder: Path, text: str) -> dict[str, str]:
    script = folder / "compiler"
    script.write_text(text.format(calls=folder / "calls"))
    script.chmod(0o755)
    return {"CXX": str(script)}


def asked(*folders: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", CODE, *map(str, folders)]
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(
        argv, env={**base, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out.strip(), err.strip()


def test_it_is_compiled_once_however_many_ask_and_takes_the_place_of_an_older_source(tmp_path: Path) -> None:
    env = compiler(tmp_path, GOOD)
    first = asked(tmp_path, env=env)
    code, file, _ = ended(first)
    assert code == 0
    path = Path(file)
    assert path.stat().st_mode & 0o777 == 0o755
    torch = path.name.rsplit(".", 2)[0]
    older, other = tmp_path / f"{torch}.0123456789ab.so", tmp_path / "_backend.torch-2.1.cpython.x.so"
    for made in (older, other):
        made.touch()
    path.unlink()
    several = [asked(tmp_path, env=env) for _ in range(3)]
    assert {ended(process)[:2] for process in several} == {(0, file)}
    assert len((tmp_path / "calls").read_text().splitlines()) == 2
    assert not older.exists()
    assert other.exists()  # of another torch, which another environment may have
    assert not list(tmp_path.glob("*.draft"))


def test_checkouts_that_share_a_cache_keep_each_others_files(tmp_path: Path) -> None:
    """A file of a cache goes that no checkout has taken for a month. One that is found stays."""
    env, nowhere, cache = compiler(tmp_path, GOOD), tmp_path / "calls" / "of-a-file", tmp_path / "cache"
    (tmp_path / "calls").touch()
    code, file, _ = ended(asked(nowhere, cache, env=env))
    assert code == 0
    torch = Path(file).name.rsplit(".", 2)[0]
    others, unused = cache / f"{torch}.0123456789ab.so", cache / f"{torch}.ba9876543210.so"
    for made in (others, unused):
        made.touch()
    os.utime(unused, (1e9, 1e9))
    Path(file).unlink()
    assert ended(asked(nowhere, cache, env=env))[:2] == (0, file)
    assert others.exists()
    assert not unused.exists()
    os.utime(file, (1e9, 1e9))
    assert ended(asked(nowhere, cache, env=env))[:2] == (0, file)
    assert time.time() - Path(file).stat().st_mtime < 3600


def test_what_lies_beside_the_package_serves_all_and_who_may_not_write_there_has_it_in_his_own_folder(
    tmp_path: Path,
) -> None:
    env = compiler(tmp_path, GOOD)
    shared, own = tmp_path / "file" / "shared", tmp_path / "own"
    (tmp_path / "file").touch()  # so that nobody, root included, can make a folder below it
    code, file, _ = ended(asked(shared, own, env=env))
    assert (code, Path(file).parent) == (0, own)


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"PATH": "/nowhere"}, "a C++ compiler is missing; on Debian: sudo apt-get install g++ python3-dev"),
        ({"CXX": "BAD"}, "compiler says: backend.cpp:3:4: fatal error: Backend.hpp: No such file"),
    ],
)
def test_what_is_missing_is_said_in_one_line(env: dict[str, str], line: str, tmp_path: Path) -> None:
    if env.get("CXX") == "BAD":
        env = compiler(tmp_path, BAD)
    code, _, err = ended(asked(tmp_path, env=env))
    assert code == 1
    assert err.splitlines()[-1].endswith(line)
    assert len(err.splitlines()) == 2  # that it compiles, and this
    assert not list(tmp_path.glob("_backend*"))


def test_a_compiler_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    env = compiler(tmp_path, SLOW) | {"LIMIT_S": "0.5"}
    code, _, err = ended(asked(tmp_path / "beside", env=env))
    assert code == 1
    assert err.splitlines()[-1].startswith("backend.cpp: compiler had not compiled it after 0.5 s; ")
    (driven,) = (int(line) for line in (tmp_path / "calls").read_text().split())
    deadline = time.monotonic() + 10
    while alive(driven) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(driven)


@pytest.mark.parametrize("compilers", [GOOD, BAD])
def test_a_torch_that_it_is_not_made_for_is_named(compilers: str, tmp_path: Path) -> None:
    env = compiler(tmp_path, compilers)
    code, _, err = ended(asked(tmp_path, env={**env, "ANOTHER_TORCH": "2.10.1"}))
    assert code == (compilers == BAD)
    lines = err.splitlines()
    assert lines[0] == "inc: compiling the backend for torch 2.10.1, once (it is made for 2.11 to 2.14)"
    assert len(lines) == 1 + (compilers == BAD)
    assert all("torch 2.10.1 (it is made for 2.11 to 2.14); compiler says: " in line for line in lines[1:])


def test_the_versions_that_it_is_made_for_are_those_that_pip_accepts() -> None:
    setup = (CHECKOUT / "setup.py").read_text()
    ((least, below),) = re.findall(r'TORCH = "torch>=([\d.]+),<([\d.]+)"', setup)
    assert least == "{}.{}".format(*OLDEST)
    assert below == f"{NEWEST[0]}.{NEWEST[1] + 1}"
    (pinned,) = re.findall(
        r"^torch==(\S+)$", (CHECKOUT / "scripts/requirements.txt").read_text(), re.MULTILINE
    )
    assert not any(map(made_for, (pinned, f"{pinned}+cpu", f"{least}.0", "2.12.1+cu130", "2.13.0rc1")))
    assert all(map(made_for, (below, "2.9.1", "3.0", "1.13.0", "2.10.0+cpu")))
