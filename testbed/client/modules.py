"""Find a module by name as `python -m` does, without running a line of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder

from testbed.errors import RequestError


def check_module(name: str, paths: Sequence[str]) -> None:
    """Check that `python -m NAME` can run, with the folders `paths` as its search path. Raises
    RequestError.
    """
    spec: ModuleSpec | None = None
    parts, folders = name.split("."), list(paths)
    for count, part in enumerate(parts, 1):
        if not part.isidentifier():
            spec = None
        elif count == 1:
            spec = _find_top(part, folders)
        else:  # search for the last part only: by the full name, Python would import the package
            spec = PathFinder.find_spec(part, folders)
        if spec is None:
            raise RequestError(f"module {name}: no module {'.'.join(parts[:count])} is found from {paths[0]}")
        folders = list(spec.submodule_search_locations or [])
    if folders and PathFinder.find_spec("__main__", folders) is None:
        raise RequestError(f"module {name}: a package without __main__; a module is accepted")


def _find_top(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, folders, None)
        if spec is not None:
            return spec
    return None
