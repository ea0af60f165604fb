"""Compare the files from which the runs of a repeated job start. A script that resumes from its own
checkpoint would train on, and the means would mix different work. Reads names, sizes and times of files, no
content.

Watched are the working folder, the script's folder, and each path that an argument names, with everything
below; hidden files, `__pycache__` and Python environments are skipped. Files elsewhere are not noticed.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 20_000  # in total; folders beyond this are not read, and no comparison includes them
WITHIN_S = 2.0
MOST_NAMED = 5
_CACHE, _ENVIRONMENT = "__pycache__", "pyvenv.cfg"  # Python's own files, as hidden files are other programs'

State = tuple[int, int, int]
"""A file's inode, its bytes, and when it was written, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The files that existed when a run started, and the folders that were not read."""

    files: Mapping[Path, State]
    unread: frozenset[Path]


def watched(script: str | None, arguments: Sequence[str], folder: Path) -> tuple[Path, ...]:
    """List the watched paths: files, and folders with everything below them. A path that an argument names
    need not exist yet if its folder does.
    """
    named = [folder] if script is None else [folder, (folder / script).parent]
    for argument in arguments:
        words = [argument.partition("=")[2]] if argument.startswith("-") else [argument]
        paths = [folder / word for word in words if word and "\0" not in word]
        with suppress(OSError):  # a name that is too long, or a folder that may not be entered
            named += [path for path in paths if path.exists() or path.parent.is_dir()]
    tops = {Path(os.path.normpath(path)) for path in named}
    return tuple(sorted(path for path in tops if not any(top in path.parents for top in tops)))


def beginning(tops: Iterable[Path], left_out: Iterable[Path] = ()) -> Beginning:
    """Record the files below these paths, breadth first, without those in `left_out`. Stops after MOST_FILES
    files or WITHIN_S seconds.
    """
    files: dict[Path, State] = {}
    unread: set[Path] = set()
    out, waiting, deadline = {*left_out}, deque(tops), time.monotonic() + WITHIN_S
    while waiting:
        path = waiting.popleft()
        if path in out:
            continue
        if len(files) > MOST_FILES or time.monotonic() > deadline:
            unread.add(path)
            continue
        try:
            if not path.is_dir():
                if path.exists():
                    files[path] = _state(path.stat())
                continue
            with os.scandir(path) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            unread.add(path)
            continue
        if any(entry.name == _ENVIRONMENT for entry in listed):
            continue
        for entry in listed:
            if entry.name == _CACHE or entry.name.startswith(".") or path / entry.name in out:
                continue
            with suppress(OSError):  # it was just removed
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path / entry.name)
                else:  # a link to a folder: compare the link itself, and do not follow it
                    files[path / entry.name] = _state(entry.stat(follow_symlinks=not entry.is_dir()))
    return Beginning(files, frozenset(unread))


def _state(stat: os.stat_result) -> State:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def changes(first: Beginning, now: Beginning) -> dict[Path, str]:
    """Return the files that differ between two records, each as new, changed or gone."""
    unread = first.unread | now.unread
    became: dict[Path, str] = {}
    for path in sorted(first.files.keys() | now.files.keys()):
        before, after = first.files.get(path), now.files.get(path)
        if before != after and unread.isdisjoint({path, *path.parents}):
            became[path] = "new" if before is None else "gone" if after is None else "changed"
    return became


def unread_in_a_line(first: Beginning, now: Beginning, folder: Path) -> str | None:
    """Say which files and folders were not compared; None if all were."""
    unread = sorted(first.unread | now.unread)
    if not unread:
        return None
    more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
    named = ", ".join(_name(path, folder) for path in unread[:MOST_NAMED])
    return (
        f"whether it begins with the first run's files in {named}{more} is not known: not all were read, for "
        f"there are more than {MOST_FILES}, or it took more than {WITHIN_S:g} s, or they may not be"
    )


def _name(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def own_outputs() -> list[Path]:
    """Return the files that this process prints to."""
    outputs = []
    for fd in (1, 2):
        with suppress(OSError):
            outputs.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
    return outputs


def in_a_line(became: Mapping[Path, str], folder: Path) -> str:
    """Say which files changed and how, the first MOST_NAMED by name."""
    named = [f"{_name(path, folder)} ({word})" for path, word in list(became.items())[:MOST_NAMED]]
    more = f" and {len(became) - MOST_NAMED} more" if len(became) > MOST_NAMED else ""
    return (
        f"it begins with other files than the first run: {', '.join(named)}{more}; a script that reads them "
        f"does other work, and the means are of both"
    )
