"""Figures 5 to 7 as experiments: the paper's experiment on a testbed (section VII-B). Heavy modules are
imported only when a figure is used.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption
from reproductions.p4inc.live.setting import FOUR, SCALE, configuration
from testbed.errors import RequestError
from testbed.systems.p4inc.policies import catalogue
from workloads import models

if TYPE_CHECKING:
    from reproductions.p4inc.live.model import JobKind
    from reproductions.p4inc.live.queue import LiveTrial
    from reproductions.p4inc.live.report import GainFinding, QueueReport, TrendFinding
    from reproductions.p4inc.live.throughput import ThroughputFinding, ThroughputReport
    from testbed.topology.model import Topology

VERSION = 1
NAMES = ("fig5", "fig6", "fig7")
ITERATIONS = {"resnet50": 20, "vgg16": 12}
"""Iterations that take three to four time slots with INC."""
OPTICAL_GBPS = 40.0
PORTS = (2, 64)
"""Optical ports of a rack, least and most. A job on both gpu racks needs a circuit to each from the rack of
its parameter server.
"""
JOBS = 6
SLOT_S = 1.0
QUICK_ITERATIONS, QUICK_JOBS = 6, 3
RUN_S = 4.0
"""Seconds that a run takes beside its jobs, on 2 cores: submitting, starting the policy, reading the
results.
"""
SCHEMES = tuple(name for name in catalogue.NAMES if name != "inc-tw-norecon")
"""All schemes but the one without reconfiguration: there a job without a circuit to its parameter server
would wait for ever.
"""


def _words(text: str) -> list[str]:
    """Split a comma-separated list and drop repeated words."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError:
        raise RequestError(f"--jobs {text}: numbers such as 6,10 are accepted") from None


EVERY = (
    QUICK,
    ExperimentOption(
        "scale", f"links and gradients are divided by it ({SCALE})", usual=SCALE, accepted=(1, 100_000)
    ),
    ExperimentOption("iterations", "of each job", quick=QUICK_ITERATIONS, accepted=(5, 10_000)),
    ExperimentOption("models", f"of {', '.join(models.CLASSIFIERS)}", _words, "A,B"),
)
QUEUE = (
    ExperimentOption(
        "jobs", f"jobs of a run ({JOBS}); the paper's: 10,20,40,60", _numbers, "N,N", [JOBS], [QUICK_JOBS]
    ),
    ExperimentOption("runs", "with another seed each (3)", usual=3, quick=1, accepted=(1, 1_000)),
    ExperimentOption("schemes", f"of {', '.join(SCHEMES)} ({','.join(FOUR)})", _words, "A,B", list(FOUR)),
    ExperimentOption("slot", "in which one job arrives, seconds (1)", float, "S", usual=SLOT_S),
    ExperimentOption("ports", f"optical ports of a rack ({PORTS[0]})", usual=PORTS[0], accepted=PORTS),
    ExperimentOption("optical-gbps", f"of a port ({OPTICAL_GBPS:g})", float, "R", usual=OPTICAL_GBPS),
    ExperimentOption("inc", "jobs for which a switch sums at once (4)", usual=4, accepted=(0, 64)),
)


def _complete(figure: str, options: Namespace) -> None:
    """Choose default models, fewer with --quick. RequestError for an option that is not accepted."""
    if options.models is None:
        every = list(models.CLASSIFIERS if figure == "fig5" else ITERATIONS)
        options.models = every if not options.quick else every[-2:] if figure == "fig5" else every[:1]
    for name, accepted in (("models", models.CLASSIFIERS), ("schemes", SCHEMES)):
        chosen = getattr(options, name, None)
        for word in chosen or ():
            if word not in accepted:
                raise RequestError(f"--{name} {word}: accepted are {', '.join(accepted)}")
        if chosen == []:
            raise RequestError(f"--{name}: one or more of {', '.join(accepted)} are accepted")
    if figure == "fig5":
        return
    if not options.jobs or not all(1 <= jobs <= 1_000 for jobs in options.jobs):
        raise RequestError(f"--jobs {','.join(map(str, options.jobs))}: numbers from 1 to 1000 are accepted")
    if not 1 <= options.optical_gbps <= 400:
        raise RequestError(f"--optical-gbps {options.optical_gbps:g}: 1 to 400 are accepted")
    if not 0.5 <= options.slot <= 60:
        raise RequestError(f"--slot {options.slot:g}: 0.5 to 60 seconds are accepted")


def _fig5(figure: str, options: Namespace, out: Path) -> ThroughputReport:
    from reproductions.live import runs_folder, trust
    from reproductions.p4inc.live import throughput
    from reproductions.progress import progress

    iterations = options.iterations or 12
    with progress("figure 5", len(options.models) * len(throughput.CASES), lines=True) as on_done:
        rows = throughput.measure(
            options.models, iterations, options.scale, runs_folder(out, figure), on_done
        )
    return throughput.ThroughputReport(
        VERSION, rows, iterations, options.scale, trust([row.verdict for row in rows])
    )


def _estimate_s(figure: str, options: Namespace) -> float:
    """Estimate how many seconds a figure's runs take; for a queue, from its simulated schedules."""
    if figure == "fig5":
        from reproductions.p4inc.live import throughput

        return len(options.models) * len(throughput.CASES) * (10.0 + (options.iterations or 12))
    return _queue_lasts_s(figure, options)


def _claims(figure: str, report: QueueReport) -> list[GainFinding | TrendFinding]:
    from reproductions.p4inc.live import tables

    return tables.claims(report.rows)


def _gains(figure: str, report: ThroughputReport) -> list[ThroughputFinding]:
    from reproductions.p4inc.live import throughput

    return throughput.claims(report.rows)


def _throughput_chart() -> Chart[ThroughputReport]:
    from reproductions.p4inc.live import plots, tables
    from reproductions.p4inc.live.throughput import ThroughputReport

    return Chart(ThroughputReport, tables.show_throughput, plots.draw_throughput)


def _chart() -> Chart[QueueReport]:
    from reproductions.p4inc.live import plots, tables
    from reproductions.p4inc.live.report import QueueReport

    return Chart(QueueReport, tables.show, plots.draw)


def _queue_lasts_s(figure: str, options: Namespace) -> float:
    """Return the simulated seconds of all runs. A schedule that never ends raises TestbedError here."""
    from reproductions.p4inc.live import ahead

    topology, _, trials = _planned(figure, options)
    return sum(ahead.lasts_s(topology, trial, options.slot) + RUN_S for trial in trials)


def _planned(figure: str, options: Namespace) -> tuple[Topology, list[JobKind], list[LiveTrial]]:
    """Return the network, the kinds of jobs, and the runs."""
    from reproductions.p4inc.live import queue
    from reproductions.p4inc.live.model import JobKind
    from testbed.topology.load import parse

    kinds = [JobKind(model, options.iterations or ITERATIONS.get(model, 12)) for model in options.models]
    trials = [
        queue.LiveTrial(kind, scheme, jobs, seed)
        for kind in kinds
        for jobs in options.jobs
        for seed in range(1, options.runs + 1)
        for scheme in options.schemes
    ]
    return parse(_configuration(options), figure), kinds, trials


def _configuration(options: Namespace) -> dict[str, Any]:
    return configuration(options.scale, options.optical_gbps, options.ports, options.inc)


def _queue(figure: str, options: Namespace, out: Path) -> QueueReport:
    from reproductions.live import runs_folder
    from reproductions.p4inc.live import ahead, queue, tables
    from reproductions.p4inc.live.report import QueueReport, SimulatedQueue
    from reproductions.progress import progress
    from testbed.topology.yaml_text import written

    runs = runs_folder(out, figure)
    topology, kinds, trials = _planned(figure, options)
    seeds = range(1, options.runs + 1)
    jobs = () if options.quick else ahead.JOBS
    foreseen = list(ahead.rows(topology, kinds, jobs, seeds, options.schemes, options.slot))
    with progress("figures 6 and 7", len(trials), lines=True) as on_done:
        text, costs_times = written(_configuration(options)), 1 if options.quick else 3
        rows, costs = queue.sweep(trials, options.slot, text, runs, on_done, costs_times)
    return QueueReport(
        version=VERSION,
        rows=rows,
        prediction=tables.prediction(rows),
        costs=costs,
        ahead=SimulatedQueue(foreseen, tables.claims(foreseen)),
        trust=tables.summed([row.trust for row in rows]),
        iterations={kind.model: kind.iterations for kind in kinds},
        runs=options.runs,
        slot_s=options.slot,
        scale=options.scale,
        optical_ports=options.ports,
        optical_gbps=options.optical_gbps,
        inc=options.inc,
    )


ABOUT = (
    "Run the paper's experiment (section VII-B) on a testbed that the command brings up and ends. "
    "Figures 6 and 7 are of the same runs: either prints and draws both. What was chosen, and why: "
    'docs/studies/p4inc-aoi.md, "The testbed experiment".'
)
EXPERIMENTS = (
    Experiment("fig5", True, ABOUT, EVERY, _fig5, _gains, _throughput_chart, _complete, _estimate_s),
    *(
        Experiment(name, True, ABOUT, (*EVERY, *QUEUE), _queue, _claims, _chart, _complete, _estimate_s)
        for name in NAMES[1:]
    ),
)
