"""Install ryu 4.34 in an environment of its own, `.venv-ryu` of this checkout: `python3
scripts/install_ryu.py`; `make ryu` runs it.

The project's environment has os-ken, ryu's continuation. Idempotent; imports nothing outside the standard
library. Exit codes are those of scripts/installing.py, and 0 where ryu cannot be built for this Python
because it is too new.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

if not __package__:  # run as a file: make `scripts` and `testbed` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.installing import (
    CACHE,
    CHECKOUT,
    RYU_ENVIRONMENT,
    SYSTEM_PYTHON,
    ended,
    give_to_owner,
    one_at_a_time,
    output_of,
    python_version,
    say,
)
from testbed.client.environment import NEWEST_FOR_RYU

REQUIREMENTS = CHECKOUT / "scripts" / "requirements-ryu.txt"
# ryu's set-up needs pbr, and a feature that setuptools 58 removed.
BUILD_TOOLS = ("setuptools==57.5.0", "pbr==5.11.1", "wheel==0.43.0")


def fingerprint(checkout: Path = CHECKOUT) -> str:
    """Return a digest of everything that the environment depends on, including its path in the checkout in
    which it was made.
    """
    parts = [
        str(checkout / RYU_ENVIRONMENT.folder.name),
        output_of(str(SYSTEM_PYTHON), "--version"),
        *BUILD_TOOLS,
        REQUIREMENTS.read_text(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def install_ryu() -> None:
    if RYU_ENVIRONMENT.is_made_of(fingerprint()):
        say("ryu: nothing is missing")
        return
    if (version := python_version()) > NEWEST_FOR_RYU:
        say(f"ryu 4.34 cannot be built for Python {'.'.join(map(str, version))}: left out, os-ken serves")
        return
    with one_at_a_time():
        RYU_ENVIRONMENT.make(CACHE / "ryu-venv.log")
        RYU_ENVIRONMENT.pip_install("what ryu is built with", CACHE / "ryu-pip-tools.log", *BUILD_TOOLS)
        RYU_ENVIRONMENT.pip_install(
            "ryu and what the controller needs (some 30 MB)",
            CACHE / "ryu-pip.log",
            *("--no-build-isolation", "-r", str(REQUIREMENTS)),
        )
        RYU_ENVIRONMENT.complete(fingerprint())
        give_to_owner()
    say("done: ryu")


def main() -> int:
    return ended(install_ryu)


if __name__ == "__main__":
    sys.exit(main())
