"""Installs BMv2 and the P4 compiler from the P4 project's own packages: `python3 -m scripts.install_p4`, as
root; `make p4-tools` runs it.

They are in no distribution. Adds the project's repository for this release of Debian or Ubuntu, and its key;
takes both away again if the installation fails. Idempotent; imports nothing outside the standard library.
Exit codes: 0 done, 1 an installer failed, 3 this host cannot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.setup import (
    CACHE,
    SetupError,
    give_to_owner,
    missing_packages,
    no_service_starts,
    run_logged,
    say,
)

REPOSITORY = "download.opensuse.org/repositories/home:/p4lang"
PACKAGES = {"simple_switch": "p4lang-bmv2", "p4c-bm2-ss": "p4lang-p4c"}  # program -> package
OS_RELEASE = Path("/etc/os-release")
APT = Path("/etc/apt")
LISTS = Path("/var/lib/apt/lists")
KEY_START = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
REACH_S = 10.0


def release_of(described: str) -> str:
    """The repository's name of the release that a text like /etc/os-release describes."""
    fields = dict(line.split("=", 1) for line in described.splitlines() if "=" in line)
    system, version = (fields.get(name, "").strip("\"'") for name in ("ID", "VERSION_ID"))
    prefix = {"debian": "Debian_", "ubuntu": "xUbuntu_"}.get(system)
    if prefix is None or not version:
        found = " ".join(part for part in (system, version) if part) or "unknown"
        raise SetupError(
            f"this system is {found}; the P4 project packages its tools for releases of Debian and Ubuntu", 3
        )
    return prefix + version


def fetched_key(url: str) -> bytes:
    """The repository's key. SetupError in one line, after REACH_S at most, where it cannot be had."""
    outcome: list[bytes | Exception] = []

    def fetch() -> None:
        try:
            with urllib.request.urlopen(url, timeout=REACH_S) as answer:
                outcome.append(answer.read(1 << 16))
        except (OSError, ValueError) as error:
            outcome.append(error)

    # a thread, since a name server that is silent is waited for longer than urlopen's time limit
    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(REACH_S)
    got = outcome[0] if outcome else TimeoutError(f"no answer within {REACH_S:g} s")
    if isinstance(got, urllib.error.HTTPError) and got.code == 404:
        raise SetupError(f"the P4 project has no packages for this release: {url} is not there", 3)
    if isinstance(got, Exception):
        raise SetupError(
            f"cannot reach the P4 project's packages, which need the network: {url}: {why(got)}", 3
        )
    if not got.startswith(KEY_START):
        raise SetupError(
            f"cannot reach the P4 project's packages: {url} answers with something else than a key", 3
        )
    return got


def why(error: Exception) -> str:
    """An error of urllib in one line."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return " ".join(text.split()) or type(error).__name__


@contextlib.contextmanager
def unless_done(files: Mapping[Path, bytes]) -> Iterator[None]:
    """Writes files; if the body fails, puts them back as they were, with the package lists that came
    meanwhile gone.
    """
    before = {path: path.read_bytes() if path.exists() else None for path in files}
    lists = set(LISTS.glob("*"))
    try:
        for path, content in files.items():
            path.write_bytes(content)
            path.chmod(0o644)
        yield
    except BaseException:
        for path, content_before in before.items():
            if content_before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content_before)
        for path in set(LISTS.glob("*")) - lists:
            if path.is_file() and "p4lang" in path.name:
                path.unlink()
        raise


def install(packages: list[str], release: str) -> None:
    """Adds the repository and installs from it."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise SetupError(f"this system has no apt-get; install its counterparts of: {' '.join(packages)}", 3)
    key, source = APT / "keyrings" / "p4lang.asc", APT / "sources.list.d" / "p4lang.list"
    key_text = fetched_key(f"https://{REPOSITORY}/{release}/Release.key")
    # http: what comes is signed, and the repository's mirrors do not all speak https
    line = f"deb [signed-by={key}] http://{REPOSITORY}/{release}/ /\n"
    for folder in (key.parent, source.parent):
        folder.mkdir(mode=0o755, exist_ok=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    options = ["-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    this_list = [
        "-o",
        f"Dir::Etc::sourcelist={source}",
        "-o",
        "Dir::Etc::sourceparts=-",
        "-o",
        "APT::Get::List-Cleanup=0",
    ]
    strict = ["-o", "APT::Update::Error-Mode=any"]
    with unless_done({key: key_text, source: line.encode()}):
        run_logged(
            "apt-get update, the P4 project's list",
            [apt, *options, *this_list, *strict, "update"],
            CACHE / "p4-apt-update.log",
            env,
        )
        with no_service_starts():
            argv = [apt, *options, "install", "--no-install-recommends", *packages]
            run_logged(f"apt-get install {' '.join(packages)}", argv, CACHE / "p4-apt-install.log", env)
        if still := missing_packages(packages):
            raise SetupError(f"apt-get install reported success, yet these are missing: {' '.join(still)}", 1)


def install_tools() -> None:
    lacking = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not lacking:
        say("nothing is missing: " + ", ".join(str(shutil.which(program)) for program in PACKAGES))
        return
    release = release_of(OS_RELEASE.read_text() if OS_RELEASE.is_file() else "")
    if os.geteuid() != 0:
        raise SetupError(f"needs root to install {' '.join(lacking)}; run: sudo make p4-tools", 3)
    try:
        install(lacking, release)
    finally:
        give_to_owner()
    say("done: " + ", ".join(lacking))


def main() -> int:
    try:
        install_tools()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("setup: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
