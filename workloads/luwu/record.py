"""Write small files atomically: to a new file that is flushed and renamed over the old one; then the folder
is flushed.

Imports nothing of the project but errors.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path

from workloads.luwu.errors import StoreError


def write(folder: Path, name: str, facts: str, blob: bytes = b"") -> None:
    """Replace a record. `facts` are JSON, as json.dumps writes it.

    Raises OSError where the record cannot be replaced: the old one is still there then or, if only the flush
    of the folder failed, either.
    """
    head = f'{{"facts": {facts}, "blob_bytes": {len(blob)}, "crc32": {_checksum(facts, blob)}}}\n'
    beside = folder / f"{name}.new"
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            content = memoryview(head.encode() + blob)
            while content:
                content = content[os.write(fd, content) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, folder / name)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    flush_folder(folder)


def read(folder: Path, name: str) -> tuple[str, bytes] | None:
    """Return a record's facts, as JSON, and its blob; None where there is no record. Raises StoreError for
    one that is damaged or cannot be read.
    """
    try:
        content = (folder / name).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StoreError(f"{folder / name}: {problem.strerror}") from problem
    line, _, blob = content.partition(b"\n")
    try:
        head = json.loads(line)
        facts = json.dumps(head["facts"])
        whole = len(blob) == head["blob_bytes"] and _checksum(facts, blob) == head["crc32"]
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise StoreError(f"{folder / name}: damaged")
    return facts, blob


def _checksum(facts: str, blob: bytes) -> int:
    return zlib.crc32(blob, zlib.crc32(facts.encode()))


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
