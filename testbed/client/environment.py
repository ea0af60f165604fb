"""The project's Python environment, and the entry point of every command. Imports the standard library and
the typed errors.

Any Python may be the first to read a command's file, so its top imports just this:

    from __future__ import annotations
    from testbed.client import environment

    def main(argv: list[str]) -> int:
        from testbed.topology import load  # import modules that need the environment in here
        parser = environment.Parser(prog="testbed up", description="...")
        ...
        return 0

    if __name__ == "__main__":
        environment.ensure()
        environment.command_main(main)
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from testbed.client import output
from testbed.client.arguments import Parser as Parser
from testbed.client.terminal_text import cleaned, line
from testbed.errors import HostError, TestbedError, disk_is_full
from testbed.interpreters import isolated, with_checkout

CHECKOUT = Path(__file__).resolve().parents[2]
VENV = CHECKOUT / ".venv"
RYU_VENV = CHECKOUT / ".venv-ryu"
TORCH_VENV = ".venv-torch-"  # followed by the version: scripts/install_torch.py
NEWEST_FOR_RYU = (3, 11)
INTERRUPTED = 130
_BEFORE = "OPTINC_PYTHONPATH_BEFORE"  # the caller's PYTHONPATH, from the exec until the new process reads it


def interpreter() -> Path:
    """Return the Python of the project's environment. Return the current Python if the package is installed
    without a checkout, or if this Python is the checkout's environment for another torch.

    Raises HostError for a checkout that was not set up.
    """
    if not is_checkout() or _has_another_torch():
        return Path(sys.executable)
    python = VENV / "bin" / "python"
    if not python.exists():
        raise HostError("not set up: run sudo make setup")
    return python


def _has_another_torch() -> bool:
    prefix = Path(sys.prefix).resolve()
    return prefix.parent == CHECKOUT and prefix.name.startswith(TORCH_VENV)


def controller_interpreter(library: str) -> Path:
    """Return the Python of the controller process: ryu has an environment of its own, because it cannot be
    installed beside os-ken.

    Raises HostError if ryu is not installed.
    """
    if library != "ryu":
        return Path(sys.executable)
    python = RYU_VENV / "bin" / "python"
    if not python.exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        if sys.version_info[:2] > NEWEST_FOR_RYU:
            raise HostError(f"ryu 4.34 cannot be built for Python {version}: take os-ken, its continuation")
        raise HostError("ryu is not installed: run sudo make ryu in a checkout of this project")
    return python


def enter() -> None:
    """Execute this command again inside the project's environment; return only if it already runs there.

    Raises HostError if the environment is missing or is not an environment.
    """
    project = interpreter()
    before = os.environ.pop(_BEFORE, None)
    if before is not None:
        os.environ["PYTHONPATH"] = before
        if not before:
            del os.environ["PYTHONPATH"]
    if not is_checkout() or Path(sys.prefix).resolve() == VENV.resolve() or _has_another_torch():
        return
    if before is not None or not (VENV / "pyvenv.cfg").exists():
        raise HostError(f"{project} is no environment of its own: remove {VENV} and run sudo make setup")
    environ = {**with_checkout(os.environ), _BEFORE: os.environ.get("PYTHONPATH", "")}
    sys.stdout.flush()
    os.execve(project, isolated("-m", _module(), *sys.argv[1:], path=project), environ)


def ensure() -> None:
    """Call `enter()` at the bottom of a command's file. If that fails, print one line and end the command."""

    def entered(_: list[str]) -> int:
        enter()
        return 0

    if code := exit_code(_command(), entered, []):
        sys.exit(code)


def command_main(run: Callable[[list[str]], int]) -> NoReturn:
    """Run a command on the process's arguments, and end the process with its exit code."""
    sys.exit(exit_code(_command(), run, sys.argv[1:]))


def exit_code(command: str, run: Callable[[list[str]], int], argv: list[str]) -> int:
    """Run `run(argv)` and return its exit code; every command passes here. Only here do typed errors become a
    line on stderr, `COMMAND: MESSAGE`; all that a command prints is cleaned
    (testbed/client/terminal_text.py); and a closed output pipe (`testbed status | head -1`) ends the command
    without a message.
    """
    output.print_at_once()
    with cleaned():
        try:
            code = _exit_code(command, run, argv)
            output.flush()
        except BrokenPipeError:
            if not output.reader_has_gone():  # a socket of ours broke: a defect
                traceback.print_exc()
            code = TestbedError.exit_code
    return output.code_as_read(code)


def _exit_code(command: str, run: Callable[[list[str]], int], argv: list[str]) -> int:
    try:
        return run(argv)
    except TestbedError as error:
        print(f"{command}: {line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:  # from argparse, which has printed a help
        output.flush()
        raise
    except OSError as error:
        full = disk_is_full(error)
        if full is None:
            raise
        print(f"{command}: {full}", file=sys.stderr)
        return full.exit_code


def data_folder(name: str) -> Path:
    """Return the path of a top folder that is no Python package, such as `bpf`: in the checkout, or where pip
    installed it (setup.py, DATA).
    """
    return (CHECKOUT if is_checkout() else Path(sys.prefix) / "share" / "optinc") / name


def is_checkout() -> bool:
    """Return whether the package lies in a checkout, which has its own set-up, rather than where pip
    installed it.
    """
    return (CHECKOUT / "scripts" / "setup.py").exists()


def say_whose_code() -> None:
    """Report on stderr if the working folder belongs to another checkout than the code that runs. A copied
    checkout's environment names the original until set-up has run in the copy.
    """
    with contextlib.suppress(OSError):  # the folder is gone
        here = Path.cwd()
        for folder in (here, *here.parents):
            if (folder / "scripts" / "setup.py").exists() and (folder / "testbed" / "__main__.py").exists():
                if folder.resolve() != CHECKOUT:
                    remedy = "for this one: make setup, then .venv/bin/testbed, in it"
                    print(f"testbed: the code is {CHECKOUT}'s, and not {folder}'s; {remedy}", file=sys.stderr)
                return


def typed(words: str, name: str = "default", anywhere: bool = False) -> str:
    """Return a `testbed` command, for the testbed of that name, as it can be typed in the working folder, or
    `anywhere`. A checkout's command is given by its path in the environment, which is on no PATH; sudo has a
    PATH of its own. The path is absolute in the root folder: detached processes run there, and their messages
    are read elsewhere.
    """
    words += "" if name == "default" else f" --name {name}"
    if not is_checkout():
        return f"testbed {words}"
    file = VENV / "bin" / "testbed"
    try:
        here = Path.cwd()
        return f"{file if anywhere or here == Path('/') else file.relative_to(here)} {words}"
    except (ValueError, OSError):  # outside the checkout, or in a folder that is gone
        return f"{file} {words}"


def _module() -> str:
    """Return the module that Python was asked to run, for `python -m testbed.up` and `python testbed/up.py`
    alike.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return str(spec.name) if spec is not None else f"testbed.{Path(sys.argv[0]).stem}"


def _command() -> str:
    """Return the command's name as the user types it, `testbed up`."""
    return _module().removesuffix(".__main__").replace(".", " ")
