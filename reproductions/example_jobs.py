"""The training scripts that live experiments run, jobs of the package workloads, and what they leave. Owns no
experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import workloads
from testbed.messages.coding import Number

_PACKAGE = Path(workloads.__file__).resolve().parent
JOBS = _PACKAGE / "jobs"
LAYERS = JOBS / "layers.py"
TIMED_DIGITS = JOBS / "timed_digits.py"
COMPARED = _PACKAGE / "luwu" / "jobs" / "compared.py"


@dataclass(frozen=True, slots=True)
class LayersResult:
    """The part that figures read of what rank 0 of layers.py leaves. `mean_ms_list` has an iteration's mean
    by worker, `late_ms_list` by iteration how late the latest layer was fetched; `ready_s` and `done_s` are
    of CLOCK_MONOTONIC; `error_over_bound` is the largest error of a sum, over what is allowed.
    """

    compute_ms: Number
    images_per_s: Number
    iteration_ms: Number
    mean_ms_list: Sequence[Number]
    ready_s: Number
    done_s: Number
    late_ms_list: Sequence[Number]
    error_over_bound: Number
