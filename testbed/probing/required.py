"""The trial of what every testbed asks of the kernel, before anything of it starts: once after each start of
the machine, and again when what is tried, or what this process may do, is another.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.client import environment
from testbed.errors import HostError, TestbedError
from testbed.probing import kernel, tried
from testbed.probing.features import BY_NAME, remedy_of
from testbed.probing.headers import cache_folder

NEEDED = ("veth", "tbf", "mirred", "xdp", "marks", "mmap", "broadcast", "programs")
BOOT, STATUS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/status")
NAME = "kernel-tried"


def require_kernel(say: Callable[[str], object], folder: Path | None = None) -> None:
    """Try what a testbed needs of this kernel, unless that was found to work since the machine was started: a
    file in `folder`, the cache's, says so. `say` is told that it begins. HostError for the first lack, with
    its remedy; TestbedError where a trial has a fault of its own.
    """
    file = (folder or cache_folder()) / NAME
    facts = _facts(sources())
    if file.is_file() and file.read_text() == facts:
        return
    say("trying what this kernel can do, once after each start of the machine")
    lacking = next((finding for finding in kernel.findings(NEEDED) if not finding.works), None)
    if lacking is not None:
        _tell(lacking.name)
        return  # it works by now
    with contextlib.suppress(OSError):  # where nothing can be kept it is tried each time
        _keep(file, facts)


def remember() -> None:
    """Keep that all of it works."""
    _keep(cache_folder() / NAME, _facts(sources()))


def sources() -> list[Path]:
    """Return the files of what is tried, and of what tries it."""
    package = Path(__file__).parents[1]
    probes = [
        *package.glob("probing/*.py"),
        *package.glob("dataplanes/xdp/*.py"),
        package / "emulation/probe.py",
    ]
    return sorted([*environment.data_folder("bpf").glob("*.[ch]"), *probes])


def _tell(name: str) -> None:
    """Raise an error for a feature that is lacking, or for the first of those that it needs."""
    for finding in tried.findings([name]):
        feature = BY_NAME[finding.name]
        if finding.broken:
            raise TestbedError(f"a fault of the testbed's own in what tries {finding.name}: {finding.detail}")
        if finding.tried and not finding.works and feature.required:
            raise HostError(
                f"this host lacks {finding.name} ({feature.what}): {finding.detail}; needed is "
                f"{remedy_of(finding, environment.is_checkout())}; testbed doctor tries all"
            )


def _facts(files: Iterable[Path]) -> str:
    rights = re.findall(r"^CapEff:\s*(\S+)$", STATUS.read_text(), re.MULTILINE)
    made = hashlib.sha256(f"{BOOT.read_text().strip()} {os.uname().release} {rights} {NEEDED}".encode())
    for path in files:
        made.update(path.read_bytes())
    return made.hexdigest()


def _keep(file: Path, facts: str) -> None:
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(prefix=f".{NAME}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(facts)
        Path(made).replace(file)
    except OSError:
        Path(made).unlink(missing_ok=True)
        raise
