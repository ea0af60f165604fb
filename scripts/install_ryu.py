"""Installs ryu 4.34 in an environment of its own, `.venv-ryu` of this checkout: `python3 -m
scripts.install_ryu`; `make ryu` runs it.

The project's environment has os-ken, ryu's continuation. Idempotent; imports nothing outside the standard
library. Exit codes: 0 done, or this Python is newer than ryu can be built for; 1 an installer failed.
"""

from __future__ import annotations

import hashlib
import sys

from scripts.setup import (
    CACHE,
    CHECKOUT,
    RYU_VENV,
    SYSTEM_PYTHON,
    SetupError,
    give_to_owner,
    one_at_a_time,
    output_of,
    run_logged,
    say,
)
from testbed.environment import NEWEST_FOR_RYU

REQUIREMENTS = CHECKOUT / "scripts" / "requirements-ryu.txt"
STAMP = RYU_VENV / ".setup-complete"
# ryu's set-up asks pbr, and asks setuptools for what 58 took away.
BUILD_TOOLS = ("setuptools==57.5.0", "pbr==5.11.1", "wheel==0.43.0")


def fingerprint() -> str:
    """What the environment depends on, its path too."""
    parts = [
        str(RYU_VENV),
        output_of(str(SYSTEM_PYTHON), "--version"),
        *BUILD_TOOLS,
        REQUIREMENTS.read_text(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_current() -> bool:
    """Whether the environment is there and of these pins."""
    return (
        (RYU_VENV / "bin" / "python").exists()
        and STAMP.exists()
        and STAMP.read_text().strip() == fingerprint()
    )


def install_ryu() -> None:
    if is_current():
        say("ryu: nothing is missing")
        return
    version = output_of(str(SYSTEM_PYTHON), "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    if tuple(int(part) for part in version.split(".")) > NEWEST_FOR_RYU:
        say(f"ryu 4.34 cannot be built for Python {version}: left out, os-ken serves")
        return
    with one_at_a_time():
        argv = [str(SYSTEM_PYTHON), "-m", "venv", "--clear", str(RYU_VENV)]
        run_logged("environment .venv-ryu", argv, CACHE / "ryu-venv.log")
        pip = [
            str(RYU_VENV / "bin" / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "install",
        ]
        pip += ["--progress-bar", "off"]
        run_logged("pip install of what ryu is built with", [*pip, *BUILD_TOOLS], CACHE / "ryu-pip-tools.log")
        argv = [*pip, "--no-build-isolation", "-r", str(REQUIREMENTS)]
        run_logged(
            "pip install of ryu and what the controller needs (some 30 MB)", argv, CACHE / "ryu-pip.log"
        )
        STAMP.write_text(fingerprint() + "\n")
        give_to_owner()
    say("done: ryu")


def main() -> int:
    try:
        install_ryu()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("setup: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
