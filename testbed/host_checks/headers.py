"""Find kernel headers for BCC. Imports only the standard library and the typed errors.

BCC compiles against one folder, by default the running kernel's. A container's kernel often has none, and
Debian splits the headers over two packages; so this overlays the architecture's package on the common one.
Programs that read only the user-space API (packet and BPF definitions) may be compiled against headers of
another version than the kernel that loads them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from testbed.errors import HostError

# A file of each of the two packages: BCC can use a folder that has both.
PROBES = (Path("include/linux/kconfig.h"), Path("include/generated/autoconf.h"))
REMEDY = "run sudo make setup (it installs Debian's linux-headers)"


def kernel_headers(root: Path = Path("/"), release: str | None = None, cache: Path | None = None) -> Path:
    """Return the folder for BCC_KERNEL_SOURCE: that of kernel `release` (default: the running one), else the
    newest installed.

    `root` and `cache` are for tests. Quick: the first call for a version makes some hundred links. HostError
    if no headers are installed.
    """
    release = release or os.uname().release
    source = _installed(root, release)
    if source is None:
        raise HostError(
            f"no kernel headers under {root / 'lib/modules' / release / 'build'} nor {root / 'usr/src'}: "
            f"{REMEDY}"
        )
    if _complete(source):
        return source
    common = _common(source)
    if common is None:
        raise HostError(
            f"{source} is not complete, and the headers common to all architectures are missing: {REMEDY}"
        )
    return _overlaid(source, common, cache or cache_folder())


def _installed(root: Path, release: str) -> Path | None:
    build = root / "lib/modules" / release / "build"
    if build.is_dir():
        return build.resolve()
    candidates = (
        folder for folder in (root / "usr/src").glob("linux-headers-*") if not folder.name.endswith("-common")
    )
    return max((folder for folder in candidates if (folder / PROBES[1]).exists()), key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", folder.name))


def _complete(folder: Path) -> bool:
    return all((folder / probe).exists() for probe in PROBES)


def _common(source: Path) -> Path | None:
    """Return the folder of the common package. Debian's architecture package has a Makefile of one line,
    `include /usr/src/linux-headers-VERSION-common/Makefile`.
    """
    makefile = source / "Makefile"
    match = (
        re.search(r"^include (\S+)/Makefile$", makefile.read_text(), re.MULTILINE)
        if makefile.is_file()
        else None
    )
    if match is None:
        return None
    # by its name beside the architecture package, so that systems under another root work too
    common = source.parent / Path(match[1]).name
    return common if (common / PROBES[0]).exists() else None


def cache_folder() -> Path:
    """Return the cache folder: for root the system's, since root's commands may run from a read-only or
    foreign checkout.
    """
    if os.geteuid() == 0:
        return Path("/var/cache/optinc")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "optinc"


def is_own(folder: Path) -> bool:
    """Return whether it is this user's folder, in which no other user may write."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o022


def identity(headers: Path) -> str:
    """Return a digest that identifies these headers, by configuration and version, whatever folder they are
    in.
    """
    made = hashlib.sha256()
    for name in (*PROBES[1:], Path("include/generated/uapi/linux/version.h")):
        made.update((headers / name).read_bytes() if (headers / name).exists() else str(headers).encode())
    return made.hexdigest()


def _overlaid(source: Path, common: Path, cache: Path) -> Path:
    target = cache / source.name
    try:
        if _complete(target):
            return target
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{source.name}.", dir=cache))
    except OSError as error:
        raise HostError(f"cannot make the overlay of kernel headers in {cache}: {error.strerror}") from error
    made.chmod(0o755)
    _merge(source, common, made)
    try:
        if target.exists():
            shutil.rmtree(target)  # its links lead to a removed package
        made.rename(target)
    except OSError:
        # another process was quicker
        shutil.rmtree(made, ignore_errors=True)
        if not _complete(target):
            raise
    return target


def _merge(upper: Path, lower: Path, made: Path) -> None:
    """Fill `made` with links; a folder that exists in both becomes a folder of links, in which the upper's
    files win.
    """
    names = {entry.name for folder in (upper, lower) for entry in folder.iterdir()}
    for name in names:
        above, below = upper / name, lower / name
        if above.is_dir() and below.is_dir() and not above.is_symlink():
            (made / name).mkdir()
            _merge(above, below, made / name)
        else:
            (made / name).symlink_to((above if above.exists() else below).absolute())
