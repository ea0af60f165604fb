"""The making of the compiled backend: once for a torch and a source, by whoever needs it first, and a clear
line where it cannot be made. The compiler is a script that says what it was asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.client.environment import CHECKOUT

CODE = """
import pathlib, sys
from workloads.native import build
build._folders = lambda: tuple(map(pathlib.Path, sys.argv[1:]))
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
