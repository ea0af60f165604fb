"""Compile and load the compiled half of the torch backend `inc`. `python -m workloads.native.build` compiles
it where it is missing; set-up does so once torch is installed.

The file fits exactly one version of torch, so that a wheel cannot contain it: where it is missing when a
worker first needs it, it is compiled then.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

NAME = "workloads._backend"
SOURCE = Path(__file__).with_name("backend.cpp")
OLDEST, NEWEST = (2, 11), (2, 14)  # torch's versions that tests/privileged/test_torch.py has run on
_LIMIT_S = 900.0  # a quiet machine takes 15 s
_KEPT_S = 30 * 86_400.0  # a file of the cache that no checkout has used for so long is stale
_TAIL_LINES = 3


class BuildError(RuntimeError):
    """The backend cannot be compiled; the message is one line and names the cause."""


def load() -> ModuleType:
    """Return the module, after compiling it where it is missing. Raises BuildError."""
    if NAME in sys.modules:  # its classes can be registered with torch only once
        return sys.modules[NAME]
    import torch  # noqa: F401  # loads the libraries that the module needs

    file = compiled()
    loader = ExtensionFileLoader(NAME, str(file))
    spec = importlib.util.spec_from_file_location(NAME, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module
    return module


def compiled() -> Path:
    """Return the file for this torch, this Python and these sources, compiled where it is missing. Raises
    BuildError.
    """
    for folder in _folders():
        if (file := folder / _file_name()).exists():
            _keep_fresh(file)
            return file
    for folder in _folders():
        if _is_writable(folder):
            return _made(folder / _file_name())
    raise BuildError(f"{SOURCE.name}: no folder to compile it in: {', '.join(map(str, _folders()))}")


def _torch_version() -> str:
    """Return the version of torch that pip installed, without importing torch."""
    return importlib.metadata.version("torch")


def made_for(version: str) -> str:
    """Return the supported versions of torch, in brackets, if this version is not among them; else an empty
    string.
    """
    release = tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])
    if OLDEST <= release <= NEWEST:
        return ""
    return " (it is made for {}.{} to {}.{})".format(*OLDEST, *NEWEST)


def _file_name() -> str:
    sources = (SOURCE, *sorted(SOURCE.parent.glob("*.hpp")), SOURCE.with_name("wire.h"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    tag = f"{sys.implementation.cache_tag}-{platform.machine()}"
    return f"_backend.torch-{_torch_version()}.{tag}.{digest}.so"


def _folders() -> tuple[Path, ...]:
    """Return the folders in which the file may be: beside the package, for all users, or in the caller's own
    cache.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (SOURCE.parents[1], Path(cache) / "optinc")


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def _made(file: Path) -> Path:
    """Compile the file, once only, even if several workers ask at the same time."""
    folder = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if file.exists():
            return file
        version = _torch_version()
        said = f"inc: compiling the backend for torch {version}, once{made_for(version)}"
        print(said, file=sys.stderr, flush=True)
        draft = file.with_suffix(f".{os.getpid()}.draft")
        try:
            _compile(draft)
            draft.chmod(0o755)
            _remove_stale(file)
            draft.rename(file)
        finally:
            draft.unlink(missing_ok=True)
    finally:
        os.close(folder)
    return file


def _remove_stale(file: Path) -> None:
    """Remove files for this torch and this Python of other sources. Beside the package, any such file is old;
    a cache is shared by several checkouts, so that a file stays that one of them used in the last 30 days.
    """
    is_own = file.parent == _folders()[0]
    for other in file.parent.glob(f"{file.name.rsplit('.', 2)[0]}.*.so"):
        if is_own or time.time() - other.stat().st_mtime > _KEPT_S:
            other.unlink()


def _keep_fresh(file: Path) -> None:
    """Update the time of a file in the cache, so that it does not count as stale. Does nothing for another
    user's file.
    """
    with contextlib.suppress(OSError):
        if file.parent != _folders()[0] and time.time() - file.stat().st_mtime > _KEPT_S / 30:
            os.utime(file)


def _compile(target: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    python = Path(sysconfig.get_path("include"))
    if compiler is None or not (python / "Python.h").exists():
        missing = "a C++ compiler" if compiler is None else f"Python's headers ({python}/Python.h)"
        raise BuildError(
            f"the backend inc is compiled for the torch that is installed, and {missing} is missing; on "
            f"Debian: sudo apt-get install g++ python3-dev"
        )
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    home = Path(torch.origin).parent
    argv = [
        *(compiler, "-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        *(
            "-Wall",
            "-Wextra",
            "-Werror",
        ),  # for our own files: others' headers are -isystem
        *("-isystem", str(home / "include"), "-isystem", str(home / "include/torch/csrc/api/include")),
        *("-isystem", str(python), str(SOURCE), f"-L{home / 'lib'}"),
        *("-lc10", "-ltorch_cpu", "-ltorch_python", "-o", str(target)),
    ]
    code, printed = _run(argv)
    if code:
        errors = [line for line in printed.splitlines() if "error" in line] or ["nothing"]
        raise BuildError(
            f"{SOURCE.name} does not compile for torch {_torch_version()}{made_for(_torch_version())}; "
            f"{Path(compiler).name} says: {'; '.join(errors[:_TAIL_LINES])}"
        )


def _run(argv: Sequence[str]) -> tuple[int, str]:
    """Run the compiler, and return its exit code and standard error. Raises BuildError after _LIMIT_S.

    An error or an interrupt here kills the compiler's whole process group, since g++ starts others; SIGKILL
    of this process does not.
    """
    try:
        with subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as compiler:
            try:
                _, printed = compiler.communicate(timeout=_LIMIT_S)
            except BaseException:
                if compiler.returncode is None:  # not reaped yet, so that the number is still the compiler's
                    os.killpg(compiler.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"{SOURCE.name}: {Path(argv[0]).name} had not compiled it after {_LIMIT_S:g} s; a quiet "
            f"machine takes 15 s"
        ) from error
    return compiler.returncode, printed


def main() -> int:
    """Compile and load the backend; return 0 on success."""
    try:
        load()
    except (BuildError, ImportError) as error:
        print(f"inc: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
