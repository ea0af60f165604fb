"""Make the environment `.venv-libraries` of this checkout: libraries over torch.distributed, which users'
scripts import, and their dependencies. `python3 scripts/install_libraries.py`; `make test-torch` runs it.

Packages of set-up's environment, torch above all, are used from there and not installed again. A program uses
the libraries by having this environment's packages on PYTHONPATH. Idempotent; imports nothing outside the
standard library. Exit codes are those of scripts/installing.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file: make `scripts` and `testbed` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.installing import (
    CACHE,
    CHECKOUT,
    ENVIRONMENT,
    Environment,
    SetupError,
    ended,
    give_to_owner,
    one_at_a_time,
    say,
)

LIBRARIES = ("accelerate==1.15.0",)
LIBRARIES_ENVIRONMENT = Environment(CHECKOUT / ".venv-libraries")


def install_libraries() -> None:
    if not ENVIRONMENT.is_whole:
        raise SetupError("set up this checkout first: sudo make setup", 3)
    fingerprint = " ".join((*LIBRARIES, "over", str(ENVIRONMENT.folder)))
    with one_at_a_time():
        if LIBRARIES_ENVIRONMENT.is_made_of(fingerprint):
            say("libraries over torch.distributed: nothing is missing")
            return
        LIBRARIES_ENVIRONMENT.make_over(ENVIRONMENT, CACHE / "libraries-venv.log")
        LIBRARIES_ENVIRONMENT.pip_install(", ".join(LIBRARIES), CACHE / "libraries-pip.log", *LIBRARIES)
        LIBRARIES_ENVIRONMENT.complete(fingerprint)
        give_to_owner()


def main() -> int:
    return ended(install_libraries)


if __name__ == "__main__":
    sys.exit(main())
