"""The folder of a user's records: its path, its content, and its limit. Every call accesses files as the
effective user: a command under sudo makes that the caller (Caller.acting).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.client.caller import Caller
from testbed.errors import RequestError, TestbedError
from testbed.records.record import FILE, Record, folder_bytes

FOLDER, LIMIT = "OPTINC_RUNS", "OPTINC_RUNS_LIMIT"
OFF = "off"  # as the folder: no records
DEFAULT_LIMIT_BYTES = 2_000_000_000
MOST_RECORDS = 1000  # reading the sizes of so many takes 0.5 s
LAST = "last"
_BEFORE = re.compile(rf"{LAST}(?:~([0-9]+))?")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]?)B?")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True)
class Store:
    """The records in a folder, with the limits of their bytes in total and of their number."""

    folder: Path
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    most: int = MOST_RECORDS

    @classmethod
    def of(
        cls, caller: Caller, folder: Path | None = None, environ: Mapping[str, str] = os.environ
    ) -> Self | None:
        """Return a user's store: in `folder`, else in the folder of the variable OPTINC_RUNS, else in the
        user's data folder. None if that variable switches records off. Raises RequestError for a malformed
        limit.
        """
        variable = environ.get(FOLDER, "")
        if folder is None and variable == OFF:
            return None
        limit_bytes = size_bytes(environ[LIMIT], LIMIT) if environ.get(LIMIT) else DEFAULT_LIMIT_BYTES
        if folder is None:
            folder = Path(variable) if variable else data_home(caller, environ) / "optinc" / "runs"
        return cls(folder.absolute(), limit_bytes)

    def names(self) -> list[str]:
        """Return the names of folders that may be records, oldest first. Links are not followed."""
        try:
            folders = list(self.folder.iterdir())
        except OSError:
            return []
        names = (path.name for path in folders if _is_record(path) and not path.is_symlink())
        return sorted(names, key=_age)

    def records(self, command: str | None = None) -> list[Record]:
        """Return all readable records, or those of a command, oldest first."""
        records = []
        for name in self.names():
            if command is not None and f"-{command}" not in name:
                continue
            try:
                records.append(Record.read(self.folder / name))
            except RequestError:  # partly removed, or another version's
                continue
        return sorted(records, key=lambda record: record.began)

    def find(self, word: str) -> Record:
        """Find a record by a word: its name, a unique part of its name, the path of its folder, `last`, or
        `last~1` for the one before. Raises RequestError with the known names.
        """
        names = self.names()
        if "/" in word or (word and _is_record(Path(word))):
            return Record.read(Path(word))
        if (before := _BEFORE.fullmatch(word)) and int(before[1] or 0) < len(names):
            return Record.read(self.folder / names[-1 - int(before[1] or 0)])
        near = [word] if word in names else [name for name in names if word and word in name]
        if len(near) == 1:
            return Record.read(self.folder / near[0])
        if near:
            raise RequestError(f"record {word!r}: {len(near)} have that in their name, {_few(near)}")
        known = (
            f"accepted are {_few(names)}, a part of such a name, {LAST}, {LAST}~1"
            if names
            else "there is none yet"
        )
        raise RequestError(f"no record {word!r} in {self.folder}; {known}")

    def new(self, command: str, now: float) -> Path:
        """Make the folder of a record that begins now. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{command}"
        number = 1
        while True:
            folder = self.folder / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
                continue
            return folder

    def remove(self, record: Record) -> None:
        """Remove a record. Raises RequestError if a command or a testbed still writes it, TestbedError if it
        cannot be removed.
        """
        if record.is_busy:
            raise RequestError(f"record {record.name}: it is {record.state} still")
        if record.folder.is_symlink():
            raise RequestError(f"record {record.folder} is a link; remove what it leads to, by its own path")
        try:
            # first the file that makes it a record: a partly removed folder is none
            (record.folder / FILE).unlink()
            shutil.rmtree(record.folder)
        except OSError as error:
            raise TestbedError(f"remove record {record.folder}: {error.strerror}") from error

    def make_room(self, kept: Path) -> list[Record]:
        """Remove the oldest records, except `kept` and busy ones, until the rest is within the limits; return
        the removed ones. Records that cannot be removed, such as other users', do not count.
        """
        sizes = {name: folder_bytes(self.folder / name) for name in self.names() if self._is_own(name)}
        total, count = sum(sizes.values()), len(sizes)
        removed: list[Record] = []
        for name, size in sizes.items():
            if total <= self.limit_bytes and count <= self.most:
                break
            if self.folder / name == kept:
                continue
            with contextlib.suppress(TestbedError):  # it cannot be read or removed
                record = Record.read(self.folder / name)
                if record.is_busy:  # a later call removes it
                    continue
                self.remove(record)
                removed.append(record)
            total, count = total - size, count - 1
        return removed

    def _is_own(self, name: str) -> bool:
        try:
            return (self.folder / name).lstat().st_uid == os.geteuid()
        except OSError:
            return False


def list_records(folder: Path | None = None) -> list[Record]:
    """Return the records of this process's user, oldest first; with `folder`, those in that folder."""
    store = Store.of(Caller.of_this_process(), folder)
    return store.records() if store else []


def data_home(caller: Caller, environ: Mapping[str, str]) -> Path:
    """Return a user's data folder, by XDG's rules. Under sudo the variables are root's, so the user database
    decides.
    """
    if caller.uid == os.geteuid():
        if (home := environ.get("XDG_DATA_HOME", "")).startswith("/"):
            return Path(home)
        return Path(environ.get("HOME") or caller.home) / ".local" / "share"
    return Path(caller.home) / ".local" / "share"


def size_bytes(text: str, what: str) -> int:
    """Parse a size like 2GB to bytes. Raises RequestError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise RequestError(f"{what}={text!r}: a size such as 500MB or 2GB is accepted")
    return int(float(match[1]) * _UNITS[match[2]])


def _is_record(folder: Path) -> bool:
    try:
        return (folder / FILE).is_file()
    except OSError:  # another user's
        return False


def _age(name: str) -> tuple[str, int, str]:
    """Return a sort key for names by age; names of the same second and command sort by number."""
    parts = name.split("-")
    number = int(parts[3]) if len(parts) > 3 and parts[3].isdecimal() else 1
    return "-".join(parts[:2]), number, name


def _few(names: list[str]) -> str:
    last = names[-3:]
    return ", ".join(last) + (f" and {len(names) - len(last)} more" if len(names) > len(last) else "")
