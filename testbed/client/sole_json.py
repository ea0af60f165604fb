"""A standard output that has one JSON document and nothing else, whatever a command and the processes that it
starts print meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def sole_json(asked: bool) -> Iterator[TextIO]:
    """Yield where the document is to be printed. While the block lasts, all that is printed otherwise, by
    this process and by its children, goes to stderr; nothing changes unless it is `asked` for.
    """
    if not asked:
        yield sys.stdout
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w") as stdout:
        os.dup2(2, 1)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield stdout
        finally:
            try:
                stdout.flush()
            finally:  # also where nobody reads it
                os.dup2(stdout.fileno(), 1)
