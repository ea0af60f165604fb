"""The compiled half of the torch backend `inc`: where its file is, and its making. `python -m
workloads.native.build` makes it where it is missing; set-up does so once torch is installed.

It is of the torch that is installed, to the version, and so is none of a wheel's files: where it is missing
when a worker first needs it, it is compiled then.
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
OLDEST, NEWEST = (2, 11), (2, 14)  # torch's versions that tests/privileged/test_torch.py was run on
_LIMIT_S = 900.0  # a quiet machine takes 15 s
_KEPT_S = 30 * 86_400.0  # that no checkout has taken a file of the cache
_TAIL_LINES = 3


class BuildError(RuntimeError):
    """The backend cannot be compiled; the message is one line and says what is missing."""


def load() -> ModuleType:
    """Return the module, compiled before where it is missing. Raises BuildError."""
    if NAME in sys.modules:  # torch takes its classes once
        return sys.modules[NAME]
    import torch  # noqa: F401  # its libraries are those that the module needs

    file = compiled()
    loader = ExtensionFileLoader(NAME, str(file))
    spec = importlib.util.spec_from_file_location(NAME, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module
    return module


def compiled() -> Path:
    """Return the file for this torch, this Python and this source, made where it is missing. Raises
    BuildError.
    """
    for folder in _folders():
        if (file := folder / _file_name()).exists():
            _mark_as_taken(file)
            return file
    for folder in _folders():
        if _is_writable(folder):
            return _made(folder / _file_name())
    raise BuildError(f"{SOURCE.name}: no folder to compile it in: {', '.join(map(str, _folders()))}")


def _torch_version() -> str:
    """Return the version that pip installed: asking torch itself would take its import."""
    return importlib.metadata.version("torch")


def made_for(version: str) -> str:
    """Return words on torch's versions, in brackets, where this one is none of them; else nothing."""
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
    """Return where the file may be: beside the package, where all users read it; else the caller's own."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (SOURCE.parents[1], Path(cache) / "optinc")


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def _made(file: Path) -> Path:
    """Compile it, once, however many workers ask at once."""
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
    """Remove files for this torch and this Python of other sources. Beside the package these are of the past;
    a cache is shared by checkouts, and keeps what one of them took lately.
    """
    is_own = file.parent == _folders()[0]
    for other in file.parent.glob(f"{file.name.rsplit('.', 2)[0]}.*.so"):
        if is_own or time.time() - other.stat().st_mtime > _KEPT_S:
            other.unlink()


def _mark_as_taken(file: Path) -> None:
    """Keep a cache's file from counting as stale. Another user's is not ours to keep."""
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
        *("-Wall", "-Wextra", "-Werror"),  # of our own files: those of torch and Python are the system's
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
    """Return the compiler's exit code and what it said of errors. An error or an interrupt here ends it with
    all that it started, for g++ is a driver; a signal that ends this process at once does not.
    """
    try:
        with subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as compiler:
            try:
                _, printed = compiler.communicate(timeout=_LIMIT_S)
            except BaseException:
                if compiler.returncode is None:  # not reaped yet: the number is still its own
                    os.killpg(compiler.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"{SOURCE.name}: {Path(argv[0]).name} had not compiled it after {_LIMIT_S:g} s; a quiet "
            f"machine takes 15 s"
        ) from error
    return compiler.returncode, printed


def main() -> int:
    """Return 0 when the file is there."""
    try:
        load()
    except (BuildError, ImportError) as error:
        print(f"inc: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
