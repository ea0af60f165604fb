"""The training scripts that live experiments run: jobs of the package workloads. Owns no experiment."""

from __future__ import annotations

from pathlib import Path

import workloads

_PACKAGE = Path(workloads.__file__).resolve().parent
JOBS = _PACKAGE / "jobs"
LAYERS = JOBS / "layers.py"
TIMED_DIGITS = JOBS / "timed_digits.py"
COMPARED = _PACKAGE / "luwu" / "jobs" / "compared.py"
