"""Check whether workers can run on the Python of a user's own environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from testbed.client import environment
from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.jobs.environment import worker_environment


def check_python(caller: Caller, python: Path, prefix: str = "--") -> None:
    """Run a Python as its user, and check that it has torch and this project. Raises RequestError, which says
    what it lacks and how to install that, also if it cannot be run or is no Python.
    """
    where = f"{prefix}python {python}"
    environ = worker_environment(os.environ, caller, in_checkout=False)
    argv = [str(python.absolute()), "-c", _LACKS]
    try:
        asked = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            cwd="/",
            env=environ,
            timeout=_ASKED_S,
            check=False,
            **caller.of_a_child(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or f"no answer in {_ASKED_S:g} s"
        raise RequestError(f"{where}: user {caller.user} cannot run it: {why}") from error
    try:
        lacks = dict(json.loads(asked.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        raise RequestError(f"{where}: it is no Python") from None
    if lacks:
        source = str(environment.CHECKOUT) if environment.is_checkout() else "optinc"
        remedy = " ".join(source if each == "optinc" else each for each in lacks)
        named = " and ".join(f"{each} ({why})" for each, why in lacks.items())
        raise RequestError(f"{where}: it lacks {named}: {python} -m pip install {remedy}")


_ASKED_S = 60.0
_LACKS = """
import importlib.metadata, importlib.util, json
lacks = {}
if importlib.util.find_spec("torch") is None:
    lacks["torch"] = "not installed"
try:
    importlib.metadata.version("optinc")
except importlib.metadata.PackageNotFoundError:
    lacks["optinc"] = "this project, not installed"
print(json.dumps(lacks))
"""
