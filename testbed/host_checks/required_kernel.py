"""Check the kernel features that every testbed needs, before anything starts: once after each boot, and again
when the probes, or this process's capabilities, have changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.client import environment
from testbed.client.atomic_write import write_whole
from testbed.errors import HostError, TestbedError
from testbed.host_checks import kernel, trials
from testbed.host_checks.features import BY_NAME, ProbeResult, remedy_of
from testbed.host_checks.headers import cache_folder

NEEDED = ("veth", "tbf", "mirred", "xdp", "marks", "mmap", "broadcast", "programs", "ticks")
BOOT, STATUS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/status")
TOLD = ("bursts",)  # a testbed works without these, and `up` says what that costs
NAME = "kernel-tried"


def require_kernel(say: Callable[[str], object], folder: Path | None = None) -> None:
    """Try the features that a testbed needs from this kernel, unless a file in `folder` (the cache) records
    that they worked since boot. `say` is called when this begins, and with a line for each optional feature
    that is missing. HostError for the first missing feature, with its remedy; TestbedError if a probe has a
    defect.
    """
    file = (folder or cache_folder()) / NAME
    facts = _facts(sources())
    kept = file.read_text().splitlines() if file.is_file() else []
    if kept[:1] != [facts]:
        say("trying what this kernel can do, once after each start of the machine")
        lacking = [finding for finding in kernel.findings((*NEEDED, *TOLD)) if not finding.works]
        needed = [finding.name for finding in lacking if finding.name in NEEDED]
        if needed:
            _tell(needed[0])
            return  # works meanwhile
        kept = [facts, *(_told(finding) for finding in lacking)]
        with contextlib.suppress(OSError):  # without a writable cache, the features are tried each time
            _keep(file, "\n".join(kept))
    for line in kept[1:]:
        say(line)


def remember() -> None:
    """Record that everything works, bursts included."""
    _keep(cache_folder() / NAME, _facts(sources()))


def sources() -> list[Path]:
    """Return the files of the tried programs and of their probes."""
    package = Path(__file__).parents[1]
    probes = [
        *package.glob("host_checks/*.py"),
        *package.glob("dataplanes/xdp/*.py"),
        package / "emulation/probe.py",
        package / "plugins/registry.py",
    ]
    return sorted([*environment.data_folder("bpf").rglob("*.[ch]"), *probes])


def _tell(name: str) -> None:
    """Raise an error for a missing feature, or for the first missing one of those that it needs."""
    for finding in trials.findings([name]):
        feature = BY_NAME[finding.name]
        if finding.broken:
            raise TestbedError(f"a fault of the testbed's own in what tries {finding.name}: {finding.detail}")
        if finding.tried and not finding.works and feature.required:
            raise HostError(
                f"this host lacks {finding.name} ({feature.what}): {finding.detail}; needed is "
                f"{remedy_of(finding, environment.is_checkout())}; testbed doctor tries all"
            )


def _told(finding: ProbeResult) -> str:
    what = BY_NAME[finding.name].what
    if finding.broken:
        return f"a fault of the testbed's own in what tries {finding.name}: {finding.detail}"
    remedy = remedy_of(finding, environment.is_checkout())
    return f"this host lacks {finding.name} ({what}): {finding.detail}; {remedy}"


def _facts(files: Iterable[Path]) -> str:
    rights = re.findall(r"^CapEff:\s*(\S+)$", STATUS.read_text(), re.MULTILINE)
    made = hashlib.sha256(
        f"{BOOT.read_text().strip()} {os.uname().release} {rights} {NEEDED} {TOLD}".encode()
    )
    for path in files:
        made.update(path.read_bytes())
    return made.hexdigest()


def _keep(file: Path, facts: str) -> None:
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_whole(file, facts.encode())
