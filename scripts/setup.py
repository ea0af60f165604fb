#!/usr/bin/python3
"""Set a Debian machine up for the testbed: system packages by apt, then the environment `.venv` of this
checkout.

Idempotent: it installs only what is missing. Imports nothing outside the standard library, because it runs
before anything is installed. Starts no service and edits no configuration. With --dependencies it installs
everything that rarely changes and leaves this checkout out: for a layer of a container's image. Exit codes
are those of scripts/installing.py.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

if not __package__:  # run as a file: make `scripts` and `testbed` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.installing import (
    CACHE,
    CHECKOUT,
    ENVIRONMENT,
    RYU_ENVIRONMENT,
    SYSTEM_PYTHON,
    Environment,
    SetupError,
    ended,
    give_to_owner,
    install_by_apt,
    missing_packages,
    one_at_a_time,
    output_of,
    python_version,
    run_logged,
    say,
)

REQUIREMENTS = CHECKOUT / "scripts" / "requirements.txt"
MOST_PATH = 200  # the kernel reads 255 characters of a script's first line
# Suffixes of Debian's linux-headers package where it is not the architecture's name.
HEADERS_SUFFIX = {"i386": "686-pae", "armhf": "armmp"}


def needed_packages() -> list[str]:
    """Return the system packages, by Debian's names on this architecture."""
    architecture = output_of("dpkg", "--print-architecture")
    return [
        "mininet",
        "openvswitch-switch",
        "python3-bpfcc",
        # BCC compiles against these; they need not be the running kernel's (testbed/host_checks/headers.py)
        f"linux-headers-{HEADERS_SUFFIX.get(architecture, architecture)}",
        "iproute2",
        "ethtool",
        "iputils-ping",
        "util-linux",
        "procps",
        "python3-venv",
        # for workloads/native
        "gcc",
        "g++",
        "libc6-dev",
        "python3-dev",
    ]


def test_packages() -> list[str]:
    """Return the packages that only tests need: `make test` installs them; a user's machine does not need
    them.
    """
    packages = ["tshark", "chromium", "prometheus"]
    # for virtual machines with Debian's kernels (tests/kernels)
    return (
        [*packages, "qemu-system-x86"] if output_of("dpkg", "--print-architecture") == "amd64" else packages
    )


def install_packages(missing: list[str]) -> None:
    if os.geteuid() != 0:
        raise SetupError(f"needs root to install {' '.join(missing)}; run: sudo make setup", 3)
    install_by_apt(missing, "setup")


def fingerprint(checkout: Path = CHECKOUT) -> str:
    """Return a digest of everything that the environment depends on.

    This includes the path of the checkout in which it was made, because its scripts contain the path, and the
    processor, for which the endpoint is compiled: an image that is moved to another machine compiles it again
    there.
    """
    parts = [
        str(checkout).encode(),
        output_of(str(SYSTEM_PYTHON), "--version").encode(),
        processor_features(),
    ]
    sources = (CHECKOUT / "setup.py", *library_sources())
    parts += [path.read_bytes() for path in (REQUIREMENTS, *sources, *backend_sources(), Path(__file__))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def library_sources() -> tuple[Path, ...]:
    """Return the files from which the libraries are compiled."""
    from testbed.native import LIBRARIES  # here: an image's first layer has no testbed/

    return tuple(file for each in LIBRARIES for file in each.files((*each.compiled, *each.included)))


def backend_sources() -> tuple[Path, ...]:
    """Return the files from which torch's backend is compiled; torch itself is pinned in REQUIREMENTS."""
    native = CHECKOUT / "workloads" / "native"
    return (*sorted(native.glob("*.[ch]pp")), *sorted(native.glob("build.py")))


def processor_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> bytes:
    """Return the processor's instruction sets, as the kernel lists them; empty where it does not."""
    lines = cpuinfo.read_bytes().splitlines() if cpuinfo.exists() else []
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")


def environment_is_current() -> bool:
    # checked in this order: an image's layer of dependencies has no sources yet to compare
    return ENVIRONMENT.is_whole and ENVIRONMENT.is_made_of(fingerprint()) and libraries_are_current()


def libraries_are_current() -> bool:
    """Return whether the compiled libraries exist and were compiled from the present sources."""
    from testbed import native  # here: an image's first layer has no testbed/

    return not any(library.why_stale(library.path) for library in native.LIBRARIES)


def environments() -> list[tuple[Environment, Callable[[Path], str]]]:
    """Return the environments that a copy of this checkout copies, each with the function that computes its
    fingerprint.
    """
    if not RYU_ENVIRONMENT.folder.exists():
        return [(ENVIRONMENT, fingerprint)]
    from scripts import install_ryu  # imported here: it imports testbed/, which an image's first layer lacks

    return [(ENVIRONMENT, fingerprint), (RYU_ENVIRONMENT, install_ryu.fingerprint)]


def original(environment: Environment) -> Path | None:
    """Return the checkout from which this one was copied or moved together with the environment; None if the
    environment belongs to this checkout, or is incomplete.
    """
    interpreter = re.match(r"#!(/.+)/bin/python", read_or_empty(environment.folder / "bin" / "pip"))
    if interpreter is None or len(str(CHECKOUT)) > MOST_PATH or re.search(r"\s", str(CHECKOUT)):
        return None  # the kernel would not accept such a first line, so pip writes another kind
    checkout = Path(interpreter[1]).parent
    return checkout if checkout != CHECKOUT and environment.is_whole else None


def move_environment(environment: Environment, checkout: Path, made_of: Callable[[Path], str]) -> None:
    """Replace the old checkout's path by this one's in an environment's scripts and in its link to the code.
    If the environment was current, it stays current.
    """
    was_current = environment.is_made_of(made_of(checkout))
    say(f"environment {environment.folder.name}, copied from {checkout}: it names this folder now")
    environment.begin()
    scripts = [path for path in (environment.folder / "bin").iterdir() if not path.is_symlink()]
    links = [*environment.packages.glob("__editable__*.py"), *environment.packages.glob("__editable__*.pth")]
    links += environment.packages.glob("optinc-*.dist-info/direct_url.json")
    named = re.compile(re.escape(str(checkout).encode()) + rb"(?=[/\"'\s:]|$)")
    for path in (*scripts, *links, environment.folder / "pyvenv.cfg"):
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content and named.search(content):
            # replaced, not edited: the file may be a hard link to the original's
            draft = path.with_name(f"{path.name}.draft")
            draft.write_bytes(named.sub(lambda _: str(CHECKOUT).encode(), content))
            shutil.copymode(path, draft)
            draft.replace(path)
    if was_current:
        environment.complete(made_of(CHECKOUT))


def install_environment(with_checkout: bool = True) -> None:
    version = ".".join(map(str, python_version()))
    if python_version() < (3, 11):
        raise SetupError(f"{SYSTEM_PYTHON} is Python {version}; Debian 12's 3.11 or newer is needed", 3)
    ENVIRONMENT.begin()
    # an environment for another path or another Python cannot be repaired in place
    folder = ENVIRONMENT.folder
    reusable = (folder / "lib" / f"python{version}").is_dir() and f"{folder}/bin" in read_or_empty(
        folder / "bin" / "pip"
    )
    if not reusable:
        ENVIRONMENT.make(CACHE / "setup-venv.log", "--system-site-packages")
    ENVIRONMENT.pip_install(
        "the pinned packages (some 300 MB)", CACHE / "setup-pip.log", "-r", str(REQUIREMENTS)
    )
    if not with_checkout:
        return
    ENVIRONMENT.pip_install(
        "this checkout",
        CACHE / "setup-pip-self.log",
        *("--no-deps", "--no-build-isolation", "-e", str(CHECKOUT)),
    )
    # after torch, whose headers and libraries it needs
    run_logged(
        "the backend inc for the torch that is installed",
        [str(ENVIRONMENT.python), "-m", "workloads.native.build"],
        CACHE / "setup-backend.log",
        {**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    ENVIRONMENT.complete(fingerprint())


def read_or_empty(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def set_up(with_checkout: bool = True, with_tests: bool = False) -> None:
    begun = time.monotonic()
    if shutil.which("dpkg-query") is None:
        raise SetupError("this system has no dpkg; Debian 12 or a system made from it is needed", 3)
    if not SYSTEM_PYTHON.exists():
        raise SetupError(f"{SYSTEM_PYTHON} is missing; run: apt-get install python3", 3)
    needed = needed_packages() + (test_packages() if with_tests else [])
    missing = missing_packages(needed)
    if not missing and environment_is_current() and not any(original(each) for each, _ in environments()):
        say("nothing is missing")
        return
    with one_at_a_time():
        if missing := missing_packages(needed):
            install_packages(missing)
        for environment, made_of in environments():
            if checkout := original(environment):
                move_environment(environment, checkout, made_of)
        if not environment_is_current():
            install_environment(with_checkout)
        give_to_owner()
    say(f"done in {time.monotonic() - begun:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/setup.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dependencies", action="store_true", help="all but this checkout itself")
    parser.add_argument("--tests", action="store_true", help="what only tests use, too")
    options = parser.parse_args()
    return ended(lambda: set_up(with_checkout=not options.dependencies, with_tests=options.tests))


if __name__ == "__main__":
    sys.exit(main())
