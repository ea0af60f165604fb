"""The rows, findings and report of figures 6 and 7. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reproductions.reports import NumberedRow, Trust
from testbed.messages.coding import UNSET, Number, UnsetType


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that processes take on this machine: from placement to ready, for each worker of a job; around
    a job's training (`handling_s`); from then until its hosts are free (`leaving_s`).
    """

    start_up_s: float
    handling_s: float
    leaving_s: float


@dataclass(frozen=True, slots=True)
class QueueTotals(NumberedRow):
    """A run of `jobs` jobs under a scheme, simulated or measured: its total JCT, with and without the start
    of processes, and the connections that it set up. A simulated run has no verdict.
    """

    model: str
    scheme: str
    jobs: int
    seed: int
    total_jct_s: Number
    total_jct_less_start_ups_s: Number
    connections: Number

    @property
    def is_trusted(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class JobTraining:
    """A job's training and its wait from ready to first slot, each as measured and as predicted from its
    placement and first slot. `late_ms`: the largest lateness of a layer; `error_over_bound`: the largest
    error of a sum divided by the allowed one.
    """

    id: int
    workers: int
    mode: str | None
    training_s: Number
    predicted_s: Number
    waiting_s: Number
    predicted_waiting_s: Number
    late_ms: Number
    error_over_bound: Number


@dataclass(frozen=True, slots=True)
class MeanErrors:
    """The mean signed and the mean absolute error of predictions, relative to the measurements."""

    mean: Number
    absolute: Number


def mean_errors(errors: Sequence[float]) -> MeanErrors:
    return MeanErrors(math.fsum(errors) / len(errors), math.fsum(map(abs, errors)) / len(errors))


@dataclass(frozen=True, slots=True)
class QueuePrediction:
    """The numbers of a run as predicted: `connections` and the error of jobs' training from the measured
    placements and first slots, the two others from the submission alone.
    """

    connections: Number
    training_error: MeanErrors
    ahead_total_jct_s: Number
    ahead_connections: Number


@dataclass(frozen=True, slots=True)
class QueueRow(QueueTotals):
    """A measured run. `start_up_s`: the mean over its jobs; `inc_jobs`: how many jobs the network summed;
    `overruns`, `late_slots` and `complaints`: those of the policy.
    """

    reconfigurations: int
    inc_jobs: int
    ct_bti_s: Number
    start_up_s: Number
    policy_s_max: Number
    overruns: int
    late_slots: int
    complaints: Sequence[str]
    trust: Trust
    per_job: Sequence[JobTraining]
    predicted: QueuePrediction

    @property
    def is_trusted(self) -> bool:
        return self.trust.is_whole


@dataclass(frozen=True, slots=True)
class PredictionMeans:
    """The means over all runs of a model and scheme, measured and predicted from the submission alone, and
    the errors of these predictions and of those of jobs' training.
    """

    model: str
    scheme: str
    runs: int
    total_jct_s: Number
    predicted_total_jct_s: Number
    total_jct_error: MeanErrors
    connections: Number
    predicted_connections: Number
    training_error: MeanErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class Reductions:
    """Shares by which a scheme reduces total JCT, with and without the start of processes, or else the
    connections. None: runs are missing.
    """

    total_jct_s: Number | UnsetType | None = UNSET
    total_jct_less_start_ups_s: Number | UnsetType | None = UNSET
    connections: Number | UnsetType | None = UNSET

    @property
    def judged(self) -> Number | None:
        """Return the share that the verdict is about: the connections', else total JCT's."""
        share = self.total_jct_s if isinstance(self.connections, UnsetType) else self.connections
        return None if isinstance(share, UnsetType) else share


@dataclass(frozen=True, slots=True)
class QueueFinding:
    """A claim of the paper about a model or about both (None)."""

    text: str
    model: str | None


@dataclass(frozen=True, slots=True)
class GainFinding(QueueFinding):
    """A share of the paper's, and ours. `verdict` is None where we have none."""

    paper: Number
    runs: Sequence[int] | None
    ours: Reductions
    verdict: str | None


@dataclass(frozen=True, slots=True)
class TrendFinding(QueueFinding):
    """At how many of `of` points a trend of the paper's holds, and at how many schemes are level. `verdict`
    is None where there is no point.
    """

    held: int
    tied: int
    of: int
    verdict: str | None
    runs: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class GatedFinding(QueueFinding):
    """A claim with the verdict word that the gate left it. `of`: a trend's points, or the runs that the gate
    counted where it left no word.
    """

    verdict: str | None
    of: int | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class SimulatedQueue:
    """The simulated runs of the paper's numbers of jobs, and the claims compared with them."""

    rows: Sequence[QueueTotals]
    claims: Sequence[QueueFinding]


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The report of figures 6 and 7; of the stamp it has the figure's name and whether its runs are live."""

    version: int
    rows: Sequence[QueueRow]
    prediction: Sequence[PredictionMeans]
    costs: Costs
    ahead: SimulatedQueue
    trust: Trust
    iterations: Mapping[str, int]
    runs: int
    slot_s: Number
    scale: int
    optical_ports: int
    optical_gbps: Number
    inc: int
    claims: Sequence[GatedFinding] = ()
    figure: str = ""
    live: bool = False
