#!/usr/bin/python3
"""Sets a Debian machine up for the testbed: system packages by apt, then the environment `.venv` of this
checkout.

Idempotent: it asks what is there and installs only what is missing. Imports nothing outside the standard
library, for it runs before anything is installed. Starts no service and edits no configuration. With
--dependencies it installs all that changes seldom and leaves this checkout out: a layer of a container's
image. Exit codes: 0 done, 1 an installer failed, 2 the request was wrong, 3 this host cannot.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
RYU_VENV = CHECKOUT / ".venv-ryu"  # scripts/install_ryu.py
CACHE = CHECKOUT / ".cache"
REQUIREMENTS = CHECKOUT / "scripts" / "requirements.txt"
STAMP = VENV / ".setup-complete"
SYSTEM_PYTHON = Path("/usr/bin/python3")  # mininet and bcc are installed for this one
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = (
    "#!/bin/sh\n# placed by optinc's set-up while apt runs: no service starts. Safe to remove.\nexit 101\n"
)
# Debian's names of the architectures whose linux-headers package is named otherwise.
HEADERS_SUFFIX = {"i386": "686-pae", "armhf": "armmp"}
TAIL_LINES = 12
PROGRESS_S = 10.0
# How the lines of apt's and pip's output begin that say where they are.
STEPS = ("Get:", "Unpacking ", "Setting up ", "Collecting ", "Downloading ", "Building ", "Installing ")


class SetupError(Exception):
    """Set-up cannot go on; `exit_code` as in the module's docstring."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def output_of(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def needed_packages() -> list[str]:
    """The system packages, by Debian's names on this architecture."""
    architecture = output_of("dpkg", "--print-architecture")
    return [
        "mininet",
        "openvswitch-switch",
        "python3-bpfcc",
        # what BCC compiles against; it need not be the running kernel's (testbed/headers.py)
        f"linux-headers-{HEADERS_SUFFIX.get(architecture, architecture)}",
        "iproute2",
        "ethtool",
        "iputils-ping",
        "util-linux",
        "procps",
        "python3-venv",
        # for workloads/native
        "gcc",
        "libc6-dev",
    ]


def test_packages() -> list[str]:
    """What only tests use: `make test` installs it, and a user's machine goes without."""
    return ["tshark"]


def missing_packages(names: list[str]) -> list[str]:
    """Those of `names` that are not installed and configured."""
    # exits with 1 when it does not know one of them, and still lists the rest
    listing = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *names],
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    installed = {line.split()[0] for line in listing.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def run_logged(what: str, argv: list[str], log: Path, env: dict[str, str] | None = None) -> None:
    """Runs an installer with its output in `log`, saying every few seconds how far it is."""
    log.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    say(what)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=env
        )
        try:
            while True:
                try:
                    code = process.wait(PROGRESS_S)
                    break
                except subprocess.TimeoutExpired:
                    steps = [line.strip() for line in tail(log, 200) if line.lstrip().startswith(STEPS)]
                    say(f"  {time.monotonic() - begun:.0f} s: {steps[-1][:80] if steps else 'working'}")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code != 0:
        lines = "\n  ".join(tail(log, TAIL_LINES))
        raise SetupError(f"{what}: {Path(argv[0]).name} exited with {code}; the end of {log}:\n  {lines}", 1)


def tail(log: Path, count: int) -> list[str]:
    text = log.read_bytes()[-8192:].decode(errors="replace").replace("\r", "\n")
    return [line for line in text.splitlines() if line.strip()][-count:]


@contextlib.contextmanager
def no_service_starts() -> Iterator[None]:
    """Tells Debian's maintainer scripts to start nothing. A policy that is already there is left as it is."""
    if POLICY.exists() and POLICY.read_text(errors="replace") != POLICY_TEXT:
        yield
        return
    POLICY.write_text(POLICY_TEXT)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def install_packages(missing: list[str]) -> None:
    if os.geteuid() != 0:
        raise SetupError(f"needs root to install {' '.join(missing)}; run: sudo make setup", 3)
    apt = shutil.which("apt-get")
    if apt is None:
        raise SetupError(f"this system has no apt-get; install its counterparts of: {' '.join(missing)}", 3)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    options = ["-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    run_logged("apt-get update", [apt, *options, "update"], CACHE / "setup-apt-update.log", env)
    with no_service_starts():
        argv = [apt, *options, "install", "--no-install-recommends", *missing]
        run_logged(f"apt-get install {' '.join(missing)}", argv, CACHE / "setup-apt-install.log", env)
    if still := missing_packages(missing):
        raise SetupError(f"apt-get install reported success, yet these are missing: {' '.join(still)}", 1)


def fingerprint() -> str:
    """What the environment depends on: the checkout's path, which every script in it names, and the
    processor, for which the endpoint is compiled: an image that is brought to another machine compiles it
    there again.
    """
    parts = [
        str(CHECKOUT).encode(),
        output_of(str(SYSTEM_PYTHON), "--version").encode(),
        processor_features(),
    ]
    sources = (CHECKOUT / "setup.py", *sorted((CHECKOUT / "workloads" / "native").glob("*.c")))
    parts += [path.read_bytes() for path in (REQUIREMENTS, *sources, Path(__file__))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def processor_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> bytes:
    """The instruction sets of the processor, as the kernel lists them; empty where it does not."""
    lines = cpuinfo.read_bytes().splitlines() if cpuinfo.exists() else []
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")


def environment_is_current() -> bool:
    return (
        (VENV / "bin" / "python").exists() and STAMP.exists() and STAMP.read_text().strip() == fingerprint()
    )


def install_environment(with_checkout: bool = True) -> None:
    version = output_of(str(SYSTEM_PYTHON), "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    if tuple(int(part) for part in version.split(".")) < (3, 11):
        raise SetupError(f"{SYSTEM_PYTHON} is Python {version}; Debian 12's 3.11 or newer is needed", 3)
    STAMP.unlink(missing_ok=True)
    # --clear: an environment made for another path or another Python cannot be mended in place
    reusable = (VENV / "lib" / f"python{version}").is_dir() and f"{VENV}/bin" in read_or_empty(
        VENV / "bin" / "pip"
    )
    if not reusable:
        argv = [str(SYSTEM_PYTHON), "-m", "venv", "--clear", "--system-site-packages", str(VENV)]
        run_logged("environment .venv", argv, CACHE / "setup-venv.log")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    argv = [*pip, "--progress-bar", "off", "-r", str(REQUIREMENTS)]
    run_logged("pip install of the pinned packages (some 300 MB)", argv, CACHE / "setup-pip.log")
    if not with_checkout:
        return
    argv = [*pip, "--no-deps", "--no-build-isolation", "-e", str(CHECKOUT)]
    run_logged("pip install of this checkout", argv, CACHE / "setup-pip-self.log")
    STAMP.write_text(fingerprint() + "\n")


def read_or_empty(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def give_to_owner() -> None:
    """What root made in somebody's checkout belongs to the checkout's owner, who may then remove it."""
    owner = CHECKOUT.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for top in (VENV, RYU_VENV, CACHE, *CHECKOUT.glob("*.egg-info")):
        for folder, _, files in os.walk(top):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two set-ups of one checkout take turns; the kernel frees the lock of one that dies."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up of this checkout is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def set_up(with_checkout: bool = True, with_tests: bool = False) -> None:
    begun = time.monotonic()
    if shutil.which("dpkg-query") is None:
        raise SetupError("this system has no dpkg; Debian 12 or a system made from it is needed", 3)
    if not SYSTEM_PYTHON.exists():
        raise SetupError(f"{SYSTEM_PYTHON} is missing; run: apt-get install python3", 3)
    needed = needed_packages() + (test_packages() if with_tests else [])
    missing = missing_packages(needed)
    if not missing and environment_is_current():
        say("nothing is missing")
        return
    with one_at_a_time():
        if missing := missing_packages(needed):
            install_packages(missing)
        if not environment_is_current():
            install_environment(with_checkout)
        give_to_owner()
    say(f"done in {time.monotonic() - begun:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/setup.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dependencies", action="store_true", help="all but this checkout itself")
    parser.add_argument("--tests", action="store_true", help="what only tests use, too")
    options = parser.parse_args()
    try:
        set_up(with_checkout=not options.dependencies, with_tests=options.tests)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("setup: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
