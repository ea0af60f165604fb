"""Replace the files of a report atomically."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import HostError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a draft, which replaces `path` at the end of the block. Raises HostError if it cannot
    be written; the draft is removed then.
    """
    draft = path.with_stem(f"{path.stem}.draft")  # keep the suffix, which sets some writers' format
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise HostError(f"write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
