"""Figure 5: training throughput of six models with two workers, with in-network sums and with a parameter
server. Owns the runs.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.example_jobs import LAYERS, LayersResult
from reproductions.p4inc.live import setting
from reproductions.p4inc.live.claims import NOISE
from reproductions.p4inc.live.model import JobKind, iteration_s
from reproductions.reports import ByVerdict, NumberedRow, Trust
from reproductions.verdicts import AGREES, DIFFERS, of_gain
from testbed.client.caller import Caller
from testbed.figures import finished_runs
from testbed.figures.verdict_gate import runs_of
from testbed.messages.coding import UNSET, Number, UnsetType, decode
from testbed.messages.verdict import JobVerdict
from testbed.topology.yaml_text import written

PAPER = {"resnet50": 1.56, "resnet101": 1.83, "resnet152": 1.65, "vgg11": 3.7, "vgg16": 3.7, "vgg19": 3.8}
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A way of summing (`sync`), and the rate of optical ports."""

    name: str
    sync: str
    optical_gbps: float
    title: str

    @property
    def rate_gbps(self) -> float:
        """Return a worker's declared rate: its own link with INC or a ring; with a parameter server, half of
        the server's link or of the optical port's rate.
        """
        return min(40.0, self.optical_gbps) / WORKERS if self.sync == "ps" else 40.0


CASES = (
    Case("inc", "inc", 40.0, "INC"),
    Case("ps", "ps", 40.0, "noINC (PS), optics at 40 Gb/s"),
    Case("ring", "ring", 40.0, "ring, no PS"),
    Case("ps-10g", "ps", 10.0, "noINC (PS), optics at 10 Gb/s"),
)


@dataclass(frozen=True, slots=True)
class ThroughputRow(ByVerdict, NumberedRow):
    """A model's training in a case. `late_ms`: median over iterations; `error_over_bound`: the largest error
    of a sum divided by the allowed one; `fullest_link`: the utilisation of the busiest link.
    """

    model: str
    case: str
    images_per_s: Number
    iteration_ms: Number
    compute_ms: Number
    predicted_ms: Number
    late_ms: Number
    error_over_bound: Number
    verdict: JobVerdict
    fullest_link: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputFinding:
    """A model's gain with INC over a case: the paper's, ours, and the predicted one. Or, with a text and no
    model, a claim about all models.
    """

    text: str | UnsetType = UNSET
    model: str | None
    over: str
    paper: Number | str
    ours: Number | str
    predicted: Number | UnsetType = UNSET
    verdict: str
    runs: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class ThroughputReport:
    """The report of figure 5; of the stamp it has the figure's name and whether its runs are live."""

    version: int
    rows: Sequence[ThroughputRow]
    iterations: int
    scale: int
    trust: Trust
    claims: Sequence[ThroughputFinding] = ()
    figure: str = ""
    live: bool = False


def measure(
    models: Sequence[str], iterations: int, scale: int, folder: Path, on_done: Callable[[str], None]
) -> list[ThroughputRow]:
    """Train each model in each case, with one testbed for each optical rate. Return a row for each run."""
    rows: list[ThroughputRow] = []
    for optical_gbps in dict.fromkeys(case.optical_gbps for case in CASES):
        configuration = written(setting.configuration(scale, optical_gbps))
        with live.testbed(f"fig5-{optical_gbps:g}g", configuration, folder) as testbed:
            for model in models:
                for case in CASES:
                    if case.optical_gbps == optical_gbps:
                        measure_one = partial(_row, testbed, JobKind(model, iterations), case, folder)
                        rows.append(
                            finished_runs.row(folder, f"{model}.{case.name}", ThroughputRow, measure_one)
                        )
                        on_done(f"{model}, {case.title}")
    return rows


def _row(testbed: live.TestbedOfFigures, kind: JobKind, case: Case, folder: Path) -> ThroughputRow:
    result, out = folder / f"{kind.model}.{case.name}.run.json", folder / f"{kind.model}.{case.name}.json"
    script = [str(LAYERS), "--model", kind.model, "--iterations", str(kind.iterations)]
    script += ["--scale", str(testbed.topology.scale), "--out", str(out)]
    testbed.command("run", "--place", f"u1:{WORKERS}", "--sync", case.sync, "--json", str(result), *script)
    with Caller.of_this_process().acting():
        layers = decode(LayersResult, json.loads(out.read_text()), out.name)
        run = live.run_result(result)
    predicted_s = iteration_s(kind, kind.volume_gigabits(testbed.topology), case.rate_gbps)
    return ThroughputRow(
        model=kind.model,
        case=case.name,
        images_per_s=layers.images_per_s,
        iteration_ms=layers.iteration_ms,
        compute_ms=layers.compute_ms,
        predicted_ms=predicted_s * 1e3,
        late_ms=statistics.median(layers.late_ms_list),
        error_over_bound=layers.error_over_bound,
        verdict=run.verdict,
        fullest_link=max((each.utilisation.max or 0.0 for each in run.telemetry.links), default=0.0),
    )


def ratio(rows: Sequence[ThroughputRow], model: str, case: str) -> float:
    """Return INC's throughput divided by a case's."""
    by = {row.case: row for row in rows if row.model == model}
    return float(by["inc"].images_per_s / by[case].images_per_s)


def predicted_ratio(rows: Sequence[ThroughputRow], model: str, case: str) -> float:
    """Return INC's predicted throughput divided by a case's."""
    by = {row.case: row for row in rows if row.model == model}
    return float(by[case].predicted_ms / by["inc"].predicted_ms)


def claims(rows: Sequence[ThroughputRow]) -> list[ThroughputFinding]:
    """Judge each model's gain of INC over a parameter server at both optical rates, with its prediction; and
    whether each VGG gains more than any ResNet.
    """
    findings: list[ThroughputFinding] = []
    for model in dict.fromkeys(row.model for row in rows):
        paper = PAPER[model]
        for case in ("ps", "ps-10g"):
            ours = ratio(rows, model, case)
            findings.append(
                ThroughputFinding(
                    model=model,
                    over=case,
                    paper=paper,
                    ours=ours,
                    predicted=predicted_ratio(rows, model, case),
                    verdict=of_gain(ours - 1, paper - 1, NOISE),
                    runs=runs_of(row for row in rows if row.model == model and row.case in ("inc", case)),
                )
            )
    for case, at in (("ps", "40"), ("ps-10g", "10")):
        larger = larger_gains(rows, case)
        if larger is not None:
            findings.append(
                ThroughputFinding(
                    text=f"each VGG gains more than any ResNet, optics at {at} Gb/s",
                    model=None,
                    over=case,
                    paper="yes",
                    ours="yes" if larger else "no",
                    verdict=AGREES if larger else DIFFERS,
                    runs=runs_of(row for row in rows if row.case in ("inc", case)),
                )
            )
    return findings


def larger_gains(rows: Sequence[ThroughputRow], case: str) -> bool | None:
    """Return whether INC gains more with every VGG than with any ResNet, as in the paper; None where there
    are runs of only one of these.
    """
    gains = {row.model: ratio(rows, row.model, case) for row in rows}
    few, many = (
        [gain for model, gain in gains.items() if model.startswith(kind)] for kind in ("resnet", "vgg")
    )
    return min(many) > max(few) if few and many else None
