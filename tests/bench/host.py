"""The machine and the commit on which a benchmark's figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def facts() -> dict[str, Any]:
    """Return kernel, cores, memory, processor and the commit under test."""
    memory_kib = next(
        line.split()[1]
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    models = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory_bytes": int(memory_kib) * 1024,
        "processor": models[0] if models else platform.machine(),
        "commit": commit or None,
    }
