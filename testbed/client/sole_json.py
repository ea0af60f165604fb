"""Restrict standard output to one JSON document, whatever a command and its child processes print
meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def sole_json(asked: bool) -> Iterator[TextIO]:
    """Yield the stream for the document. Inside the block, all other output of this process and its children
    goes to stderr. Without `asked`, changes nothing.
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
            finally:  # also if the reader has gone
                os.dup2(stdout.fileno(), 1)
