"""The words that start an interpreter. Imports the standard library alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def isolated(*words: str, path: Path | None = None) -> list[str]:
    """Return the words that start an interpreter, this process's or that at `path`, with `words` behind it:
    all that the project starts for itself are started by these.

    No file of the working folder stands in for a module (-P): root may be in a folder of somebody else's, who
    would have his code run by root. Modules are those of the environment.
    """
    return [str(path or sys.executable), "-P", *words]


def with_checkout(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process whose modules are this checkout's, whichever its interpreter's were
    installed from, and then those that the caller's own PYTHONPATH names.
    """
    paths = [str(Path(__file__).resolve().parents[1]), environ.get("PYTHONPATH", "")]
    return {**environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
