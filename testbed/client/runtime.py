"""A testbed's runtime folder, by which commands find it: its name, files and locks, and who may access it.

    /run/optinc/NAME/   lock  owner  main.json  topology.json  daemon.sock  controller.sock  history.jsonl
                        log/  jobs/ID/

The main process holds two locks for its whole life, so that the kernel says whether a testbed lives.
- `lock`: root alone acquires it (flock) to claim a name; no other user may open it.
- `owner`: a write lock of the open file description. Every user may query it; only root can acquire it,
  because that needs a file opened for writing.

A folder whose `owner` is not locked belongs to a dead testbed; of that, log/ and died.json stay
(last_words.py). Imports nothing that acts on the network.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import struct
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.cgroups import lifetime as cgroups
from testbed.client.caller import NOGROUP, Caller
from testbed.client.environment import typed
from testbed.client.last_words import FILE as LAST_WORDS
from testbed.client.last_words import LOG, LastWords
from testbed.client.main_facts import MainState
from testbed.errors import OwnerError, RequestError, TestbedError

RUN_DIR = Path("/run/optinc")
DEFAULT_NAME = "default"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_SWEPT_S = 0.5  # longer than a command holds the lock of a folder that it sweeps
_REMOVE_S = 30.0
_LOCKED = struct.Struct("@hhqqi4x")  # <fcntl.h>, struct flock: type, whence, start, length (0: all), pid


def check_name(name: str) -> str:
    """Return the name if it is a valid testbed name. Raises RequestError."""
    if not _NAME.fullmatch(name):
        raise RequestError(
            f"--name {name!r}: a name is 1 to 31 lower-case letters, digits and hyphens, and starts with no "
            f"hyphen"
        )
    return name


@dataclass(frozen=True, slots=True)
class Runtime:
    """The paths of one testbed."""

    name: str
    folder: Path

    @classmethod
    def of(cls, name: str, root: Path = RUN_DIR) -> Runtime:
        return cls(name, root / check_name(name))

    @classmethod
    def meant(cls, name: str | None, root: Path = RUN_DIR, or_dead: bool = False) -> Runtime:
        """Return the runtime of this name. Without a name: of the only testbed that runs; if none runs, of
        DEFAULT_NAME or, with `or_dead`, of the only one that died. Raises RequestError, which names them, if
        there are several.
        """
        if name is None:
            names, do = running(root), "run"
            if or_dead and not names:
                names, do = dead(root), "died"
            if len(names) > 1:
                raise RequestError(f"several testbeds {do}: {', '.join(names)}; name one of them")
            name = names[0] if names else DEFAULT_NAME
        return cls.of(name, root)

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def owner(self) -> Path:
        return self.folder / "owner"

    @property
    def main(self) -> Path:
        return self.folder / "main.json"

    @property
    def topology(self) -> Path:
        return self.folder / "topology.json"

    @property
    def socket(self) -> Path:
        return self.folder / "daemon.sock"

    @property
    def controller_socket(self) -> Path:
        return self.folder / "controller.sock"

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    def alive(self) -> bool:
        """Return whether the main process lives, by its lock in the kernel, which no user's own locks can
        imitate. Raises OwnerError for another user's testbed.
        """
        try:
            fd = os.open(self.owner, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:  # it is being made, and not yet readable
            raise self._of_another() from None
        with os.fdopen(fd) as file:
            if (uid := os.geteuid()) != 0 and uid != int(file.read()):
                raise self._of_another()
            asked = _LOCKED.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_ = _LOCKED.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
        return bool(kind != fcntl.F_UNLCK)

    def _of_another(self) -> OwnerError:
        return OwnerError(f"testbed {self.name!r} belongs to another user: use sudo")

    def held_by(self, pid: int) -> bool:
        """Return whether a process has the lock file open. Raises PermissionError for a process that this
        user may not inspect.
        """
        lock = self.lock.stat()
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                opened = fd.stat()
                if (opened.st_dev, opened.st_ino) == (lock.st_dev, lock.st_ino):
                    return True
        return False

    def read_main(self) -> MainState | None:
        """Read the facts that the main process wrote about itself; None before it has written them, and after
        it has gone.
        """
        try:
            return MainState.read(self.main.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise self._of_another() from None

    def last_words(self) -> LastWords | None:
        """Return why the last testbed of this name died; None if it lives, ended normally, or never existed.
        Raises OwnerError for another user's testbed.
        """
        if (left := LastWords.read(self.folder)) is not None:
            return left
        main = self.read_main()
        return LastWords.of_killed(main) if main and not self.alive() else None

    def require_free(self) -> None:
        """Raise RequestError, with the pid, if a testbed of this name lives."""
        if self.alive():
            raise self.taken()

    def taken(self) -> RequestError:
        """Make the error for a name that a running testbed has."""
        main = self.read_main()
        pid = main.pid if main else "not yet known"
        return RequestError(
            f"testbed {self.name!r} is running already (pid {pid}): choose another --name, or end it: "
            f"{typed('down', self.name)}"
        )

    def require_alive(self) -> None:
        """Raise an error unless the testbed lives: TestbedError with the reason if it died, RequestError with
        the names of those that run instead, OwnerError if only other users' testbeds run.
        """
        if self.alive():
            return
        if last := self.last_words():
            words = f"status --name {self.name}"
            raise TestbedError(f"testbed {self.name!r} is not running: {last}; more: {typed(words)}")
        others, hidden = running(self.folder.parent), running_of_others(self.folder.parent)
        if hidden and not others:
            raise OwnerError(
                f"testbed {self.name!r} is not running; of other users there are: {', '.join(hidden)}; for "
                f"these use sudo"
            )
        instead = f"; running: {', '.join(others)}" if others else f"; none is. Start one: sudo {typed('up')}"
        raise RequestError(f"testbed {self.name!r} is not running{instead}")


def add_name_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--name`, for `Runtime.meant`."""
    parser.add_argument("--name", help="of the testbed; without it, the one that runs")


def running(root: Path = RUN_DIR) -> list[str]:
    """List the names of the living testbeds that this user may see."""
    names = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        with contextlib.suppress(OwnerError):
            if _NAME.fullmatch(folder.name) and Runtime(folder.name, folder).alive():
                names.append(folder.name)
    return names


def running_of_others(root: Path = RUN_DIR) -> list[str]:
    """List the names of other users' testbeds, which this user may not see into."""
    names = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        try:
            _ = _NAME.fullmatch(folder.name) and Runtime(folder.name, folder).alive()
        except OwnerError:
            names.append(folder.name)
    return names


def dead(root: Path = RUN_DIR) -> list[str]:
    """List the names of the testbeds that died and that this user may see."""
    names = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        with contextlib.suppress(OwnerError):
            if _NAME.fullmatch(folder.name) and Runtime(folder.name, folder).last_words():
                names.append(folder.name)
    return names


class HeldName:
    """A testbed's name, claimed: makes the runtime folder anew and holds its locks. A context manager that
    removes the folder at its end.
    """

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self.runtime = runtime
        self._caller = caller
        self._fd = self._owner_fd = -1
        self._last: LastWords | None = None

    def __enter__(self) -> Self:
        """Claim the name, and remove a dead testbed's files and cgroups. Raises RequestError, with the pid,
        if a testbed of this name runs.
        """
        self.take()
        try:
            self._make()
        except BaseException:
            self.release()
            raise
        return self

    def take(self) -> None:
        """Acquire the name's lock, and leave the folder unchanged. Raises RequestError if a testbed of this
        name runs.
        """
        folder = self.runtime.folder
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        deadline = time.monotonic() + _SWEPT_S
        while not self._try():
            if time.monotonic() > deadline:
                raise self.runtime.taken()
            time.sleep(0.02)  # another command may be sweeping the folder

    def _try(self) -> bool:
        """Try to lock the file that the path names now (an ending testbed unlinks its own); return whether
        that succeeded.
        """
        self.runtime.folder.mkdir(mode=0o711, exist_ok=True)
        try:
            fd = os.open(self.runtime.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_ino == self.runtime.lock.stat().st_ino:
                self._fd = fd
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        return False

    def _make(self) -> None:
        folder = self.runtime.folder
        cgroups.sweep(self.runtime.name)
        for entry in folder.iterdir():
            if entry != self.runtime.lock:
                remove_tree(entry)
        # Users may pass through to sockets and folders that are theirs, but can neither list nor write it.
        folder.chmod(0o711)
        for path, mode in ((self.runtime.log, 0o750), (self.runtime.jobs, 0o711)):
            path.mkdir()
            path.chmod(mode)
        if self._caller.gid != NOGROUP:  # a group that many users share
            os.chown(self.runtime.log, -1, self._caller.gid)
        self._owner_fd = os.open(self.runtime.owner, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(self._owner_fd, f"{self._caller.uid}\n".encode())
        written = _LOCKED.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(self._owner_fd, fcntl.F_OFD_SETLK, written)
        os.fchmod(self._owner_fd, 0o444)  # from now on other users may query the lock

    def write_main(self, main: MainState) -> None:
        """Replace main.json atomically. It stays root's, because root's commands signal the pid in it."""
        draft = self.runtime.main.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(main)) + "\n")
        draft.chmod(0o644)
        draft.replace(self.runtime.main)

    def leave(self, last: LastWords) -> None:
        """Set the last words that `release` writes, beside the logs."""
        self._last = last

    def release(self) -> None:
        """Remove the folder, its lock files last, and release the name. Last words and, with them, logs
        stay.
        """
        if self._fd < 0:
            return
        kept = {self.runtime.lock, self.runtime.owner}
        try:
            if self._last:
                with contextlib.suppress(OSError):  # a full disk: the logs alone say why
                    self._last.write(self.runtime.folder, self._caller.uid)
                kept |= {self.runtime.log, self.runtime.folder / LAST_WORDS}
            for entry in self.runtime.folder.iterdir():
                if entry not in kept:
                    remove_tree(entry)
            self.runtime.owner.unlink(missing_ok=True)
            self.runtime.lock.unlink(missing_ok=True)  # after this another testbed may make both anew
            with contextlib.suppress(
                OSError
            ):  # the next testbed of this name may be making its lock in there
                self.runtime.folder.rmdir()
        finally:
            for fd in {self._fd, self._owner_fd} - {-1}:
                os.close(fd)
            self._fd = self._owner_fd = -1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def sweep(name: str, root: Path = RUN_DIR) -> bool:
    """Remove a dead testbed's files, but not its last words and logs, and its cgroups; return whether there
    were any. Does nothing to a living testbed. For root.
    """
    runtime = Runtime.of(name, root)
    if runtime.alive():
        return False
    cgroups.sweep(name)
    folder = runtime.folder
    if not folder.is_dir() or (LastWords.read(folder) and not runtime.lock.exists()):
        return False
    held = HeldName(runtime, Caller.of(0))
    with contextlib.suppress(RequestError):
        held.take()
        if main := runtime.read_main():
            held.leave(LastWords.of_killed(main))
        held.release()
        return True
    return False


def remove_dead(name: str, root: Path = RUN_DIR) -> None:
    """Remove all files of a testbed that died, last words and logs too, and its cgroups. Raises RequestError,
    with the pid, if a testbed of this name lives. For root.
    """
    held = HeldName(Runtime.of(name, root), Caller.of(0))
    held.take()
    try:
        cgroups.sweep(name)
    finally:
        held.release()


def remove_tree(path: Path) -> None:
    """Remove a file or folder, whatever a user has put into it: `rm` follows no link, stays on one file
    system, and handles folders of any depth. Files that it has not removed within _REMOVE_S seconds stay.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["rm", "-rf", "--one-file-system", "--", str(path)], timeout=_REMOVE_S, check=False)
