"""The sampler: one thread that reads all counters at absolute deadlines, as long as a recording is active.

Reading links costs most. If one reading takes more than LINK_SHARE of an interval, links are read only in
every second, third, ... sample.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from testbed.errors import TestbedError
from testbed.telemetry import counters
from testbed.telemetry.samples import LinkCounters, LinkReading, Links, Recording, Sample

INTERVAL_S = 0.1
LINK_SHARE = (
    0.01  # of a core; 20 links take 0.6 ms a reading, 384 links 7 ms (measured on two cores at 10 Hz)
)

Segments = Callable[[], Mapping[str, int]]
Holders = Callable[[], Mapping[str, int]]


class Sampler:
    """Thread-safe. `segments` returns the number of segments in use, by switch; `holders` the job that holds
    each host.
    """

    def __init__(
        self,
        links: Links,
        segments: Segments,
        machine: Callable[[], counters.MachineReading],
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        holders: Holders = dict,
    ) -> None:
        if not interval_s > 0:
            raise ValueError(f"interval_s={interval_s:g}: more than 0 is accepted")
        self.interval_s = interval_s
        self._links, self._segments, self._machine, self._clock = links, segments, machine, clock
        self._holders = holders
        self._lock = threading.Lock()  # guards the fields below, and reading
        self._recordings: list[Recording] = []
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._names: tuple[str, ...] = ()
        self._rates: tuple[float | None, ...] = ()
        self._link_stride, self._link_cost_s = 1, math.inf

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recording]:
        """Sample from the begin of the block to its end, both included."""
        with self._lock:
            first = self._sample(None, read_links=True)
            recording = Recording(self.interval_s, self._names, self._rates, time.time(), [first])
            self._recordings.append(recording)
            if self._thread is None:
                self._end = threading.Event()
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._end, first.at_s + self.interval_s),
                    name="telemetry",
                    daemon=True,
                )
                self._thread.start()
        try:
            yield recording
        finally:
            with self._lock:
                self._recordings.remove(recording)
                ending = None
                if not self._recordings:
                    self._end.set()
                    ending, self._thread = self._thread, None
                try:
                    recording.add(self._sample(None, read_links=True))
                except (TestbedError, OSError) as error:
                    recording.failure = recording.failure or f"{type(error).__name__}: {error}"
            if ending:
                ending.join()

    def cores_busy(self) -> list[float] | None:
        """Return each core's busy share in the last second; None while nothing is sampled."""
        with self._lock:
            if not self._recordings or len(self._recordings[-1].samples) < 2:
                return None
            last = self._recordings[-1].samples[-1 - math.ceil(1 / self.interval_s) :]
            before, now = last[0], last[-1]
        busy = (now.machine.cores - before.machine.cores)[:, counters.BUSY] / max(
            now.at_s - before.at_s, 1e-9
        )
        return [round(float(share), 2) for share in busy.clip(0, 1)]

    def recent(self, seconds: float) -> Recording | None:
        """Return the samples of the last `seconds`, beginning with one that has links; None while nothing is
        sampled, or if links were read fewer than two times.
        """
        with self._lock:
            if not self._recordings:
                return None
            whole = self._recordings[0]  # the longest
            samples = whole.samples[-1 - math.ceil(seconds / whole.interval_s) :]
            interval_s, failure = whole.interval_s, whole.failure
        read = [at for at, sample in enumerate(samples) if sample.links is not None]
        if len(read) < 2:
            return None
        samples = samples[read[0] : read[-1] + 1]
        first = samples[0].links
        rates = whole.rates_mbps
        if first is not None and first.rates_mbps is not None:
            rates = tuple(None if math.isnan(rate) else float(rate) for rate in first.rates_mbps)
        return Recording(interval_s, whole.names, rates, whole.began_unix, samples, failure)

    def _sample(self, due_s: float | None, read_links: bool) -> Sample:
        began = self._clock()
        late_s = None if due_s is None else began - due_s
        machine = self._machine()
        links = self._read_links() if read_links else None
        return Sample(began, late_s, machine, links, dict(self._segments()), self._holders())

    def _read_links(self) -> LinkReading:
        began, cpu = self._clock(), time.thread_time()
        counters_by_link = self._links.statistics(queues_only=True)
        ended, cost_s = self._clock(), time.thread_time() - cpu
        # the least cost so far: the first reading, and a disturbed one, costs more
        self._link_cost_s = min(cost_s, self._link_cost_s)
        self._link_stride = max(1, math.ceil(self._link_cost_s / (LINK_SHARE * self.interval_s)))
        self._names, self._rates = (
            tuple(counters_by_link),
            tuple(_rate_mbps(link) for link in counters_by_link.values()),
        )
        rows = [
            (link.bytes_ab, link.bytes_ba, link.drops - link.device_drops, link.backlog_bytes)
            for link in counters_by_link.values()
        ]
        rates = np.array([math.nan if rate is None else rate for rate in self._rates])
        return LinkReading(began, ended, np.array(rows, np.int64).reshape(-1, 4), rates)

    def _run(self, end: threading.Event, due: float) -> None:
        count = 0
        while not end.wait(max(0.0, due - self._clock())):
            cpu = time.thread_time()
            if self._clock() < due:  # Event.wait may return a little early
                continue
            count += 1
            with self._lock:
                if end.is_set():
                    return
                try:
                    sample = self._sample(due, read_links=count % self._link_stride == 0)
                except (TestbedError, OSError) as error:
                    for recording in self._recordings:
                        recording.failure = f"{type(error).__name__}: {error}"
                    self._thread = None
                    return
                cost_s = time.thread_time() - cpu
                for recording in self._recordings:
                    recording.add(sample)
                    recording.cost_s += cost_s
            due += self.interval_s
            behind = self._clock() - due
            if behind > 0:  # skip the deadlines that have passed; the next is on the same grid
                due += math.ceil(behind / self.interval_s) * self.interval_s


def _rate_mbps(link: LinkCounters) -> float | None:
    return link.rate_mbps if link.is_up or link.rate_mbps is None else 0.0
