"""Install BMv2 and the P4 compiler from the P4 project's own packages: `python3 scripts/install_p4.py`, as
root; `make p4-tools` runs it.

No distribution has them. Adds the project's repository for this release of Debian or Ubuntu, and its key;
removes both again if the installation fails. Idempotent; imports nothing outside the standard library. Exit
codes are those of scripts/installing.py.
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

if not __package__:  # run as a file: make `scripts` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.installing import SetupError, apt_get, ended, give_to_owner, install_by_apt, say

REPOSITORY = "download.opensuse.org/repositories/home:/p4lang"
PACKAGES = {"simple_switch": "p4lang-bmv2", "p4c-bm2-ss": "p4lang-p4c"}  # program -> package
OS_RELEASE = Path("/etc/os-release")
APT = Path("/etc/apt")
LISTS = Path("/var/lib/apt/lists")
KEY_START = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
REACH_S = 10.0


def release_of(described: str) -> str:
    """Return the repository's name for the release that a text like /etc/os-release describes. Raises
    SetupError for another system.
    """
    fields = dict(line.split("=", 1) for line in described.splitlines() if "=" in line)
    system, version = (fields.get(name, "").strip("\"'") for name in ("ID", "VERSION_ID"))
    prefix = {"debian": "Debian_", "ubuntu": "xUbuntu_"}.get(system)
    if prefix is None or not version:
        release = " ".join(part for part in (system, version) if part) or "unknown"
        raise SetupError(
            f"this system is {release}; the P4 project packages its tools for releases of Debian and Ubuntu",
            3,
        )
    return prefix + version


def fetched_key(url: str) -> bytes:
    """Fetch the repository's key. Raises SetupError, in one line and after REACH_S at most, where it cannot
    be fetched.
    """
    outcome: list[bytes | Exception] = []

    def fetch() -> None:
        try:
            with urllib.request.urlopen(url, timeout=REACH_S) as answer:
                outcome.append(answer.read(1 << 16))
        except (OSError, ValueError) as error:
            outcome.append(error)

    # a thread, because a silent name server takes longer than urlopen's time limit
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
    """Return an error of urllib as one line."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return " ".join(text.split()) or type(error).__name__


@contextlib.contextmanager
def unless_done(files: Mapping[Path, bytes]) -> Iterator[None]:
    """Write files; if the body fails, restore them, and remove the package lists that were added
    meanwhile.
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
    """Add the repository, and install packages from it."""
    apt_get(packages)
    key, source = APT / "keyrings" / "p4lang.asc", APT / "sources.list.d" / "p4lang.list"
    key_text = fetched_key(f"https://{REPOSITORY}/{release}/Release.key")
    # http: the packages are signed, and not all of the repository's mirrors have https
    line = f"deb [signed-by={key}] http://{REPOSITORY}/{release}/ /\n"
    for folder in (key.parent, source.parent):
        folder.mkdir(mode=0o755, exist_ok=True)
    this_list_alone = (
        f"Dir::Etc::sourcelist={source}",
        "Dir::Etc::sourceparts=-",
        "APT::Get::List-Cleanup=0",
        "APT::Update::Error-Mode=any",
    )
    options = [word for setting in this_list_alone for word in ("-o", setting)]
    with unless_done({key: key_text, source: line.encode()}):
        install_by_apt(packages, "p4", ", the P4 project's list", options)


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
    return ended(install_tools)


if __name__ == "__main__":
    sys.exit(main())
