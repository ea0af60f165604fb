"""Run pip and apt-get with their output in a log, make Python environments, and end an installer with its
exit code: shared by set-up and the other installers of this folder.

Imports nothing outside the standard library, because it runs before anything is installed. Exit codes: 0
done, 1 an installer failed, 2 the request was wrong, 3 this host cannot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
CACHE = CHECKOUT / ".cache"
SYSTEM_PYTHON = Path("/usr/bin/python3")  # the one for which mininet and bcc are installed
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = (
    "#!/bin/sh\n# placed by optinc's set-up while apt runs: no service starts. Safe to remove.\nexit 101\n"
)
_BASE = "zz-base.pth"  # read last, so that the environment's own packages come first
TAIL_LINES = 12
PROGRESS_S = 10.0
# Beginnings of the lines in which apt and pip report progress.
STEPS = ("Get:", "Unpacking ", "Setting up ", "Collecting ", "Downloading ", "Building ", "Installing ")


class SetupError(Exception):
    """Set-up cannot continue; `exit_code` as in the module's docstring."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def output_of(*argv: str) -> str:
    """Return a program's output. Raises SetupError, with the last line of its errors, when it fails."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
        raise SetupError(f"{argv[0]} exited with {done.returncode} and said: {said[-1]}", 1)
    return done.stdout.strip()


def ended(work: Callable[[], None]) -> int:
    """Run an installer, and return its exit code; print one line on stderr where it fails."""
    try:
        work()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # a full disk, another user's folder
        print(f"setup: {error.filename or 'write'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


def run_logged(what: str, argv: list[str], log: Path, env: dict[str, str] | None = None) -> None:
    """Run an installer with its output in `log`, and print its progress every few seconds. Raises SetupError
    when it fails.
    """
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


# ---- Debian's packages ----


def missing_packages(names: Sequence[str]) -> list[str]:
    """Return those of `names` that are not installed and configured."""
    # exits with 1 if it does not know one of them, but lists the others
    listing = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *names],
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    installed = {line.split()[0] for line in listing.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


@contextlib.contextmanager
def no_service_starts() -> Iterator[None]:
    """Keep Debian's maintainer scripts from starting services inside the block. Another policy that exists
    already stays in force instead.
    """
    if POLICY.exists() and POLICY.read_text(errors="replace") != POLICY_TEXT:
        yield
        return
    POLICY.write_text(POLICY_TEXT)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def apt_get(wanted: Sequence[str]) -> str:
    """Return the path of apt-get. Raises SetupError, naming the packages in `wanted`, where there is none."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise SetupError(f"this system has no apt-get; install its counterparts of: {' '.join(wanted)}", 3)
    return apt


def install_by_apt(names: Sequence[str], log: str, sources: str = "", options: Sequence[str] = ()) -> None:
    """Update apt's lists with these options, and install packages. `sources` describes the lists in the log
    line. The logs are LOG-apt-update.log and LOG-apt-install.log in CACHE.
    """
    apt = [apt_get(names), "-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    run_logged(f"apt-get update{sources}", [*apt, *options, "update"], CACHE / f"{log}-apt-update.log", env)
    with no_service_starts():
        argv = [*apt, "install", "--no-install-recommends", *names]
        run_logged(f"apt-get install {' '.join(names)}", argv, CACHE / f"{log}-apt-install.log", env)
    if still := missing_packages(names):
        raise SetupError(f"apt-get install reported success, yet these are missing: {' '.join(still)}", 1)


# ---- Python's environments ----


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, with a stamp file that has the fingerprint of its contents."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        major, minor = python_version()
        return self.folder / "lib" / f"python{major}.{minor}" / "site-packages"

    @property
    def _stamp(self) -> Path:
        return self.folder / ".setup-complete"

    @property
    def is_whole(self) -> bool:
        """Return whether the environment exists and was completed."""
        return self.python.exists() and self._stamp.exists()

    def is_made_of(self, fingerprint: str) -> bool:
        """Return whether the environment is complete and has this fingerprint."""
        return self.is_whole and self._stamp.read_text().strip() == fingerprint

    def begin(self) -> None:
        """Mark the environment as incomplete, until `complete`."""
        self._stamp.unlink(missing_ok=True)

    def complete(self, fingerprint: str) -> None:
        """Mark the environment as complete, with this fingerprint."""
        self._stamp.write_text(fingerprint + "\n")

    def make(self, log: Path, *options: str) -> None:
        """Make an empty environment in place of the present one."""
        argv = [str(SYSTEM_PYTHON), "-m", "venv", "--clear", *options, str(self.folder)]
        run_logged(f"environment {self.folder.name}", argv, log)

    def make_over(self, base: Environment, log: Path) -> None:
        """Make an empty environment that also finds another one's packages, after its own."""
        self.make(log, "--system-site-packages")
        below = f"import site; site.addsitedir({str(base.packages)!r})\n"
        (self.packages / _BASE).write_text(below)

    def pip_install(self, what: str, log: Path, *arguments: str) -> None:
        """Run pip install with these arguments; `what` describes them in the log line."""
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        run_logged(f"pip install of {what}", [*pip, "--progress-bar", "off", *arguments], log)


def python_version() -> tuple[int, int]:
    """Return SYSTEM_PYTHON's version, such as (3, 11)."""
    major, minor = output_of(str(SYSTEM_PYTHON), "-c", "import sys; print(*sys.version_info[:2])").split()
    return int(major), int(minor)


ENVIRONMENT = Environment(CHECKOUT / ".venv")
RYU_ENVIRONMENT = Environment(CHECKOUT / ".venv-ryu")  # scripts/install_ryu.py


def give_to_owner() -> None:
    """Change the owner of files that root made in the checkout to the checkout's owner, who may then remove
    them.
    """
    owner = CHECKOUT.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for top in (*CHECKOUT.glob(".venv*"), CACHE, *CHECKOUT.glob("*.egg-info")):
        for folder, _, files in os.walk(top):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let set-ups of one checkout run one at a time; the kernel releases the lock of one that dies."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up of this checkout is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
