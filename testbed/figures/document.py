"""The stamp on every reproduced figure's document: its making."""

from __future__ import annotations

import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.report import host


@dataclass(frozen=True, slots=True)
class StampHost(host.HostFacts):
    """The host, and the commit of the source that ran."""

    commit: str | None


@dataclass(frozen=True, slots=True)
class Stamp:
    """A figure's paper and name, and where, when, of which source and in what time it was made."""

    paper: str
    figure: str
    host: StampHost
    finished: str
    took_s: float


def stamped(paper: str, figure: str, took_s: float, checkout: Path) -> Stamp:
    """Make the stamp of a figure that was made just now."""
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    here = StampHost(**asdict(host.facts()), commit=commit(checkout))
    return Stamp(paper, figure, here, finished, round(took_s, 1))


def commit(checkout: Path) -> str | None:
    """Return the commit of the source that ran; None where there is no git, or no checkout."""
    words = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None
