"""Replace files atomically: a reader sees the old content or the new. Imports the standard library only."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_whole(path: Path, content: bytes, on_disk: bool = False) -> None:
    """Write a file completely, or leave it unchanged after any failure. With `on_disk`, sync the content to
    disk before the rename, and the folder before returning. Mode 0644: only its owner may write it. Raises
    OSError.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    try:
        with os.fdopen(os.open(draft, _FLAGS, 0o644), "wb") as file:
            file.write(content)
            if on_disk:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if on_disk:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that syncs no folders
            raise
    finally:
        os.close(fd)
