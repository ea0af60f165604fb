"""The stamp on every reproduced figure's document: its making."""

from __future__ import annotations

import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.report import host


def stamped(paper: str, figure: str, took_s: float, checkout: Path) -> dict[str, Any]:
    """Return whose figure it is, and where, when, of which source and in what time it was made."""
    return {
        "paper": paper,
        "figure": figure,
        "host": {**asdict(host.facts()), "commit": commit(checkout)},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "took_s": round(took_s, 1),
    }


def commit(checkout: Path) -> str | None:
    """Return the commit of the source that ran; None where there is no git, or no checkout."""
    words = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None
