"""Paths of the training scripts of package `workloads` that live experiments run, and the type of the result
that layers.py writes. Owns no experiment.
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
    """The fields that figures read of the result that rank 0 of layers.py writes. `mean_ms_list`: mean time
    of an iteration, by worker. `late_ms_list`: by iteration, how late the latest layer was fetched. `ready_s`
    and `done_s`: seconds of CLOCK_MONOTONIC. `error_over_bound`: the largest error of a sum, divided by the
    error that is allowed.
    """

    compute_ms: Number
    images_per_s: Number
    iteration_ms: Number
    mean_ms_list: Sequence[Number]
    ready_s: Number
    done_s: Number
    late_ms_list: Sequence[Number]
    error_over_bound: Number
