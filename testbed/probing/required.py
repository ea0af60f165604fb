"""The trial of what every testbed asks of the kernel, before anything of it starts: once after each start of
the machine, and again when the programs are others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from testbed.errors import HostError, TestbedError
from testbed.probing import kernel
from testbed.probing.features import BY_NAME, FEATURES, remedy_of
from testbed.probing.headers import cache_folder

NEEDED = tuple(feature.name for feature in FEATURES if feature.required and feature.name in kernel.PROBES)
BOOT = Path("/proc/sys/kernel/random/boot_id")
NAME = "kernel-tried"


def require_kernel(programs: str, folder: Path | None = None) -> None:
    """Try what a testbed needs of this kernel, unless that was found to work since the machine was started,
    with the same `programs` (their text): a file in `folder`, the cache's, says so. HostError for the first
    lack, with its remedy; TestbedError where a trial has a fault of its own.
    """
    file = (folder or cache_folder()) / NAME
    if file.exists() and file.read_text() == _facts(programs):
        return
    for finding in kernel.findings(NEEDED):
        feature = BY_NAME[finding.name]
        if finding.broken:
            raise TestbedError(f"a fault of the testbed's own in what tries {finding.name}: {finding.detail}")
        if not finding.works:
            raise HostError(
                f"this host lacks {finding.name} ({feature.what}): {finding.detail}; needed is "
                f"{remedy_of(finding)}; testbed doctor tries all"
            )
    with contextlib.suppress(OSError):  # where nothing can be kept it is tried each time
        remember(programs, folder)


def remember(programs: str, folder: Path | None = None) -> None:
    """Keep that all of it works, with these programs."""
    file = (folder or cache_folder()) / NAME
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(prefix=f".{NAME}.", dir=file.parent)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(_facts(programs))
    Path(made).replace(file)


def _facts(programs: str) -> str:
    text = f"{BOOT.read_text().strip()} {os.uname().release} {' '.join(NEEDED)} {programs}"
    return hashlib.sha256(text.encode()).hexdigest()
