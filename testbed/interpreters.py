"""The words that start an interpreter. Imports the standard library alone."""

from __future__ import annotations

import sys
from pathlib import Path


def isolated(*words: str, path: Path | None = None) -> list[str]:
    """Return the words that start an interpreter, this process's or that at `path`, with `words` behind it:
    all that the project starts for itself are started by these.

    No file of the working folder stands in for a module (-P): root may be in a folder of somebody else's, who
    would have his code run by root. Modules are those of the environment.
    """
    return [str(path or sys.executable), "-P", *words]
