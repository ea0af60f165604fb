"""The command line and environment of a Python interpreter. Imports the standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def isolated(*words: str, path: Path | None = None) -> list[str]:
    """Return the command line of an interpreter, this process's or the one at `path`, followed by `words`.
    Every interpreter that the project starts for itself is started by it.

    With -P, no file of the working folder can replace a module: root may be in another user's folder, whose
    code root would then run. Modules come from the environment.
    """
    return [str(path or sys.executable), "-P", *words]


def with_checkout(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which modules come from this checkout, wherever its interpreter's were
    installed from, and then from the caller's own PYTHONPATH.
    """
    paths = [str(Path(__file__).resolve().parents[1]), environ.get("PYTHONPATH", "")]
    return {**environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
