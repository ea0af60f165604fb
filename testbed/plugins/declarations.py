"""Import the declarations that systems have in light modules of their folders, beside the systems themselves:
a command that needs only these loads no system.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.plugins.user_class import in_a_line

PACKAGE = "testbed.systems"


def declared(module: str, name: str) -> Iterator[Any]:
    """Yield the value `name` of the module called `module` in each system's folder that has such a module, in
    the order of folders' names. TestbedError names a module that cannot be imported.
    """
    package = importlib.import_module(PACKAGE)
    for info in pkgutil.iter_modules(package.__path__):
        if not any(Path(path, info.name, f"{module}.py").exists() for path in package.__path__):
            continue
        where = f"{PACKAGE}.{info.name}.{module}"
        try:
            yield getattr(importlib.import_module(where), name)
        except Exception as error:  # a third party's module may raise anything
            raise TestbedError(f"import {where}: {in_a_line(error)}") from error


def all_options() -> Any:
    """Return the class of a job's options, those of data-plane programs included."""
    return importlib.import_module(f"{PACKAGE}.job_options").JobOptions
