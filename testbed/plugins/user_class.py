"""Load a class that a user names by FILE.py:CLASS or MODULE:CLASS. For processes that run as that user."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def is_users(name: str) -> bool:
    """Return whether a name is of a user's class, rather than of something built into the testbed."""
    return ":" in name


def load(name: str, folder: str | None = None) -> Any:
    """Load the class, or any other object, of that name. The folder of FILE and `folder` are appended to the
    module path; a relative FILE counts from `folder` (None: the working folder). Errors of the user's code
    are passed on.
    """
    where, _, attribute = name.rpartition(":")
    base = Path(folder or os.getcwd())
    # appended at the end, so that no user's module hides one of Python's own
    sys.path += [str((base / where).parent), str(base)]
    module = _file(base / where) if where.endswith(".py") else importlib.import_module(where)
    return getattr(module, attribute)


def in_a_line(error: BaseException) -> str:
    """Return an error's class name and the first line of its message."""
    first, _, rest = str(error).partition("\n")
    return f"{type(error).__name__}: {first}{' ...' if rest else ''}"


def line_of(error: BaseException, name: str) -> str:
    """Return " (line N)": the last line of the user's file (of FILE.py:CLASS) in an error's traceback; "" if
    the file is not in it.
    """
    file = os.path.abspath(name.rpartition(":")[0])
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(frame.filename) == file
    ]
    return f" (line {frames[-1].lineno})" if frames else ""


def _file(path: Path) -> Any:
    name = f"users_{path.stem}"  # a user's file may have the name of one of Python's modules
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
