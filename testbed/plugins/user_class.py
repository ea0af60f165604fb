"""A class that a user names: FILE.py:CLASS, or MODULE:CLASS. For processes that run as that user."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def is_users(name: str) -> bool:
    """Return whether a name is of a user's class, and not of something that the testbed has."""
    return ":" in name


def load(name: str, folder: str | None = None) -> Any:
    """The class, or whatever has that name. Modules are found in FILE's folder and in `folder`, from which a
    relative FILE counts: the working one, if none is said. Raises what the user's code raises.
    """
    where, _, attribute = name.rpartition(":")
    base = Path(folder or os.getcwd())
    # last: none of them stands in for Python's own
    sys.path += [str((base / where).parent), str(base)]
    module = _file(base / where) if where.endswith(".py") else importlib.import_module(where)
    return getattr(module, attribute)


def in_a_line(error: BaseException) -> str:
    """The kind of an error, and the first line of what it says."""
    first, _, rest = str(error).partition("\n")
    return f"{type(error).__name__}: {first}{' ...' if rest else ''}"


def line_of(error: Exception, name: str) -> str:
    """Return the last line of the user's file, of a class by FILE.py:CLASS, that an error passed; nothing if
    it passed none.
    """
    file = os.path.abspath(name.rpartition(":")[0])
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(frame.filename) == file
    ]
    return f" (line {frames[-1].lineno})" if frames else ""


def _file(path: Path) -> Any:
    name = f"users_{path.stem}"  # a file may be called as one of Python's modules
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
