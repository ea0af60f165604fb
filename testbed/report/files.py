"""The files of a report: each is there whole, or as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import HostError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path of a draft, which takes the place of `path` at the end. HostError, and no draft left, where it
    cannot be written.
    """
    draft = path.with_stem(f"{path.stem}.draft")  # the suffix says to some what to write
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise HostError(f"write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
