"""The runs of figures 14 to 16: three servers at one switch, without declared rates, so that they measure
this machine. Owns no claim.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.reports import FigureReport, LoadVerdict, NumberedRow
from testbed.client.caller import Caller
from testbed.emulation.namespaces import die_with_parent
from testbed.figures import finished_runs, machine_load
from testbed.interpreters import isolated
from testbed.messages.coding import decode
from testbed.messages.verdict import Reason
from testbed.systems.trio.options import MOST_AGE_OUT_MS
from testbed.topology.model import MOST_RECORDS
from testbed.topology.yaml_text import written

WORKERS = 3
MTU = 4200  # 1,024 gradients of a packet, and headers
WORKER = Path(__file__).with_name("worker.py")
PUSHED_BACK_TO_BACK = 20  # section 6.3
AGED_GRADIENTS = 256
MOST_AGED_RUNS = 100  # more packets would meet results that the absent worker has not fetched
OnDone = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AgedRow(NumberedRow):
    """Packets to which one of two workers does not contribute: the time of each in timeouts (`over`). `busy`:
    this command keeps every core busy. `load`: the share of all cores that other processes use.
    """

    timeout_ms: float
    busy: bool
    over: Sequence[float]
    load: float
    verdict: LoadVerdict

    @property
    def is_trusted(self) -> bool:
        return self.verdict.trustworthy


@dataclass(frozen=True, slots=True)
class StreamRow(NumberedRow):
    """Runs of `packets` packets of `gradients` gradients each, at most `window` of them under way. `seconds`:
    the time of each run's last worker. `load`: the share of all cores that other processes use.
    """

    gradients: int
    window: int
    packets: int
    seconds: Sequence[float]
    load: float
    verdict: LoadVerdict

    @property
    def is_trusted(self) -> bool:
        return self.verdict.trustworthy

    @property
    def latency_us(self) -> float:
        """Return the mean time of a packet from its push to its result, by Little's law: packets under way
        (the window) over their rate.
        """
        return 1e6 * self.window * self._packet_s

    @property
    def rate(self) -> float:
        """Return gradients of each worker summed per microsecond, as the paper counts."""
        return self.gradients / (1e6 * self._packet_s)

    @property
    def gbps(self) -> float:
        """Return the rate as Gb/s of each worker."""
        return self.rate * 32 / 1e3

    @property
    def _packet_s(self) -> float:
        return statistics.median(self.seconds) / self.packets


@dataclass(frozen=True, slots=True)
class AgedReport(FigureReport):
    """The report of figure 14; `runs` is the number of runs of each timeout."""

    version: int
    about: str
    runs: int
    rows: Sequence[AgedRow]


@dataclass(frozen=True, slots=True)
class StreamReport(FigureReport):
    """The report of figure 15 or 16; `runs` is the number of runs of each setting."""

    version: int
    about: str
    runs: int
    rows: Sequence[StreamRow]


@dataclass(frozen=True, slots=True)
class PacketTimes:
    """The result of a worker of worker.py."""

    seconds: Sequence[float]


def network() -> str:
    """Return the configuration of a rack of unshaped hosts, as YAML."""
    return written(
        {
            "units": [{"hosts": WORKERS}],
            "host_rate_mbps": "unshaped",
            "mtu": MTU,
            "inc": {"blocks": MOST_RECORDS},
        }
    )


def aged(timeouts_ms: Sequence[float], runs: int, folder: Path, on_done: OnDone) -> list[AgedRow]:
    """Measure how many timeouts a packet takes to which one of two workers does not contribute: for each
    timeout, on a quiet machine and on one with busy cores.
    """
    rows = []
    with live.testbed("fig14", network(), folder) as testbed:
        for is_busy in (False, True):
            for timeout_ms in timeouts_ms:
                stem = f"{timeout_ms:g}.{'busy' if is_busy else 'quiet'}"
                measure_one = partial(_aged, testbed, folder / stem, timeout_ms, is_busy, runs)
                rows.append(finished_runs.row(folder, stem, AgedRow, measure_one))
                on_done(f"{timeout_ms:g} ms, {'busy' if is_busy else 'quiet'}")
    return rows


def streamed(
    name: str, settings: Sequence[tuple[int, int]], packets: int, runs: int, folder: Path, on_done: OnDone
) -> list[StreamRow]:
    """Measure the time of each run's packets, for each pair of gradients per packet and window."""
    rows = []
    with live.testbed(name, network(), folder) as testbed:
        for gradients, window in settings:
            stem = f"{gradients}.{window}"
            measure_one = partial(_streamed, testbed, folder / stem, gradients, window, packets, runs)
            rows.append(finished_runs.row(folder, stem, StreamRow, measure_one))
            on_done(f"{gradients} gradients, window {window}")
    return rows


def _aged(testbed: live.TestbedOfFigures, stem: Path, timeout_ms: float, is_busy: bool, runs: int) -> AgedRow:
    words = ["--lanes", str(AGED_GRADIENTS), "--age-out", f"{timeout_ms:g}"]
    script = ["--packets", str(PUSHED_BACK_TO_BACK), "--runs", str(runs), "--aged"]
    before = machine_load.others()
    with _busy_cores() if is_busy else contextlib.nullcontext():
        pushers_s, _ = _run(testbed, stem, words, script, workers=2)
    over = [seconds * 1e3 / timeout_ms for seconds in pushers_s]
    return AgedRow(timeout_ms, is_busy, over, *_loaded(before, machine_load.others()))


def _streamed(
    testbed: live.TestbedOfFigures, stem: Path, gradients: int, window: int, packets: int, runs: int
) -> StreamRow:
    # blocks are not meant to age out here: the longest timeout, 100 ms, is rarely reached
    words = ["--lanes", str(gradients), "--window", str(window), "--age-out", f"{MOST_AGE_OUT_MS:g}"]
    script = ["--packets", str(packets), "--runs", str(runs)]
    before = machine_load.others()
    taken_s = _run(testbed, stem, words, script)
    last_s = [max(each) for each in zip(*taken_s, strict=True)]
    return StreamRow(gradients, window, packets, last_s, *_loaded(before, machine_load.others()))


def _loaded(*samples: tuple[float, float]) -> tuple[float, LoadVerdict]:
    """Return the higher of the loads by other processes sampled around a run, and the verdict on it."""
    used = max(share for share, _ in samples)
    reasons = [] if used <= machine_load.QUIET else [Reason("busy", f"others used {used:.0%} of the cores")]
    return used, LoadVerdict(not reasons, reasons)


def _run(
    testbed: live.TestbedOfFigures,
    stem: Path,
    words: Sequence[str],
    script: Sequence[str],
    workers: int = WORKERS,
) -> list[Sequence[float]]:
    """Run a job of worker.py, and return the times of each worker."""
    result = stem.with_name(f"{stem.name}.json")
    testbed.command(
        *("run", "--place", f"u1:{workers}", "--sync", "trio", *words, "--json", str(result)),
        *(str(WORKER), *script, "--out", str(stem)),
    )
    with Caller.of_this_process().acting():
        files = [stem.with_name(f"{stem.name}.{rank}") for rank in range(workers)]
        return [decode(PacketTimes, json.loads(file.read_text()), file.name).seconds for file in files]


@contextlib.contextmanager
def _busy_cores() -> Iterator[None]:
    """Keep every core busy with a computing process for the duration of the block."""
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            words = isolated("-c", "while True: pass")
            process = subprocess.Popen(words, preexec_fn=die_with_parent)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
