"""One start of a job, from its processes' settings to their results: its folder, its workers and parameter
server, its report.

Makes no decisions: the layout says where the job runs and how it sums; the admission has its resources in the
network, or they come through its gates.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.aggregation.grants import Admission
from testbed.aggregation.system import Layout
from testbed.client.caller import Caller
from testbed.client.runtime import remove_tree
from testbed.jobs import result
from testbed.jobs.board import JobBoard
from testbed.jobs.circuit_desk import CircuitDesk
from testbed.jobs.environment import master_port, paths_from, worker_environment
from testbed.jobs.gates import Gates
from testbed.jobs.groups import Groups
from testbed.jobs.processes import Emit, Ending, JobProcesses, Orders, ProcessSpec
from testbed.jobs.request import JobRequest
from testbed.jobs.services import server_spec, service_address
from testbed.jobs.starting import Starter
from testbed.jobs.user_files import UserFiles
from testbed.machine.interface import Hosts
from testbed.messages.result import WorkerResult
from testbed.messages.statistics import Statistics
from testbed.telemetry.demand import Traffic
from testbed.topology import addresses
from testbed.wire.settings import SumSettings, WorkerSettings, written

MOST_LOG_BYTES = 8 << 20
"""The most bytes of a process's log in its job's own folder, which is in memory, or in a record; the end of
its output is kept in addition.
"""
KEPT_BYTES = 64 << 20
"""The most bytes of the folders of ended jobs, in total."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job's processes: their job, how they sum, and the files that they share. With gates, the
    workers wait there for their settings, and the parameter server, if the job has one, runs already.
    """

    job: int
    generation: int
    request: JobRequest
    layout: Layout
    admission: Admission | None
    rate_mbps: float | None
    number: int  # 0: the job's first
    folder: Path
    board: JobBoard
    groups: Groups
    circuits: CircuitDesk
    gates: Gates | None
    emit: Emit
    started: Callable[[], None]  # called when all processes run
    orders: Orders

    @property
    def logs(self) -> Path:
        return self.request.logs or self.folder

    @property
    def suffix(self) -> str:
        """Return the suffix of its files' names, which is empty for the job's first start."""
        return f".restart-{self.number}" if self.number else ""


class Executor:
    """Runs the attempts of all jobs of the testbed `name`. Their folders are in `root`; users' files are
    accessed through `files`. Thread-safe.
    """

    def __init__(self, name: str, hosts: Hosts, root: Path, files: UserFiles) -> None:
        self.testbed, self._hosts, self._root, self.files = name, hosts, root, files
        self._lock = threading.Lock()
        self._in_use: set[Path] = set()  # the folders of living jobs

    def close(self) -> None:
        """End the process that workers are forks of, if there is one."""
        self._hosts.end_forks()

    def folder_of(self, job: int) -> Path:
        return self._root / str(job)

    @contextlib.contextmanager
    def folder(self, job: int, request: JobRequest) -> Iterator[Path]:
        """Make the job's own folder, owned by its user. If it has the logs it stays, until ended jobs'
        folders exceed KEPT_BYTES.
        """
        folder = self.folder_of(job)
        with self._lock:
            self._in_use.add(folder)
        remove_tree(folder)  # from the earlier job of this number, 65,535 jobs ago
        folder.mkdir(mode=0o700)
        os.chown(folder, request.caller.uid, request.caller.gid)
        try:
            yield folder
        finally:
            if request.logs is not None:
                remove_tree(folder)
            with self._lock:
                self._in_use.discard(folder)
                self._make_room()

    def _make_room(self) -> None:
        """Remove the folders of the jobs that ended first, until those of ended jobs have at most
        KEPT_BYTES.
        """
        ended = [folder for folder in self._root.iterdir() if folder not in self._in_use]
        ended.sort(key=lambda folder: folder.lstat().st_mtime_ns, reverse=True)
        size = 0
        for number, folder in enumerate(ended):
            size += _size_bytes(folder)
            if size > KEPT_BYTES and number > 0:
                remove_tree(folder)

    def attempt(self, attempt: Attempt) -> tuple[list[ProcessSpec], Ending]:
        """Run all processes of an attempt, from start to end. Raises RequestError if a log cannot be written,
        TestbedError if a process cannot be started.
        """
        request, specs = attempt.request, self._specs(attempt)
        if folders := [spec.cwd for spec in specs if spec.cwd is not None]:
            self.files.make_folders(folders, request.caller)
        seed = own_hash_seed(request.environ) if request.preload else None
        forks = request.preload and seed is None
        with self._hosts.enclosed(f"job-{attempt.job}", request.caller.uid) as enclosure:
            starter = Starter(self._hosts, enclosure, request.caller, request.cwd, forks)
            with JobProcesses(starter, attempt.board, attempt.emit) as processes:
                processes.start(specs, self.files.open_logs([spec.log for spec in specs], request.caller))
                attempt.started()
                ending = processes.wait(attempt.orders)
        if seed is not None and attempt.number == 0:
            note = f"PYTHONHASHSEED={seed} counts when Python starts: its workers are no forks (--preload)"
            ending = replace(ending, notes=[note, *ending.notes])
        return specs, ending

    def workers(
        self, specs: Sequence[ProcessSpec], ending: Ending, caller: Caller
    ) -> tuple[list[WorkerResult], list[str]]:
        """Return the results of an ended attempt's workers, by rank, and a line for each worker that wrote
        statistics which cannot be used.
        """
        workers = sorted((spec for spec in specs if not spec.serves), key=lambda spec: spec.index)
        stats, notes = self._stats([spec.stats for spec in workers if spec.stats is not None], caller)
        ended = [
            WorkerResult(
                rank=spec.index,
                host=spec.host,
                exit_code=ending.exit_codes.get(spec.index),
                log=str(spec.log),
                stacks=str(spec.stacks) if spec.index in ending.left_stacks else None,
                stats=left,
            )
            for spec, left in zip(workers, stats, strict=True)
        ]
        return ended, notes

    def _stats(self, paths: Sequence[Path], caller: Caller) -> tuple[list[Statistics | None], list[str]]:
        """Return the workers' statistics, by rank, and a line for each that cannot be used."""
        stats: list[Statistics | None] = []
        notes: list[str] = []
        for rank, content in enumerate(self.files.read(paths, caller, result.MOST_BYTES)):
            parsed, lack = None, None
            if isinstance(content, OSError):
                lack = content.strerror
            elif content is not None:
                try:
                    parsed = result.parse_stats(content)
                except result.StatsError as error:
                    lack = str(error)
            if lack is not None:
                notes.append(f"the statistics that worker {rank} left are not in the result: {lack}")
            stats.append(parsed)
        return stats, notes

    def _specs(self, attempt: Attempt) -> list[ProcessSpec]:
        log = attempt.logs / f"ps{attempt.suffix}.log"
        slate_fd = attempt.board.slate_fd
        server = server_spec(attempt.job, attempt.layout, attempt.request, log, attempt.admission, slate_fd)
        workers = [self._worker(attempt, rank) for rank in range(len(attempt.layout.workers))]
        specs = [server, *workers] if server else workers
        if attempt.request.logs is None or attempt.request.bounded_logs:
            specs = [replace(spec, most_log_bytes=MOST_LOG_BYTES) for spec in specs]
        return specs

    def _worker(self, attempt: Attempt, rank: int) -> ProcessSpec:
        request, layout = attempt.request, attempt.layout
        hosts = [addresses.host_name(*host) for host in layout.workers]
        environ, cwd = request.environ, None
        *option, script = request.arguments_of_python
        if request.folders is not None:  # relative paths in its options still start at its caller's folder
            cwd = request.folders / f"worker-{rank}"
            environ = paths_from(request.cwd, environ, first=request.options.module)
            script = script if request.options.module else os.path.join(request.cwd, script)
        sums, fds = settings_of(attempt.job, layout, attempt.admission, attempt.rate_mbps, rank)
        stacks = attempt.logs / f"stacks-{rank}{attempt.suffix}.log"
        master = addresses.host_ip(*layout.workers[0])
        gate = attempt.gates.fd(rank) if attempt.gates else None
        stats = attempt.folder / f"stats-{rank}{attempt.suffix}.json"
        settings = WorkerSettings(
            testbed=self.testbed,
            job_id=attempt.job,
            generation=attempt.generation,
            rank=rank,
            hosts=tuple(hosts),
            board=attempt.board.settings(),
            stats=str(stats),
            sums=sums,
            options=request.options.for_worker(),
            asked_in=request.cwd,
            groups=attempt.groups.fd(rank),
            circuits=attempt.circuits.fd(rank),
            stacks=str(stacks),
            master=f"{master}:{master_port(attempt.job)}",
            gate=gate,
        )
        env = worker_environment(
            environ,
            request.caller,
            rank=rank,
            world_size=len(hosts),
            master=master,
            job_id=attempt.job,
            description=written(settings),
            attempt=attempt.number,
            restarts=request.options.restarts,
            in_checkout=request.python is None,
        )
        ends = (attempt.groups.fd(rank), attempt.circuits.fd(rank), *([] if gate is None else [gate]))
        python = str(request.python or sys.executable)
        argv = (python, "-u", *option, script, *request.arguments)
        log = attempt.logs / f"worker-{rank}{attempt.suffix}.log"
        host = hosts[rank]
        spec = ProcessSpec(
            rank, host, f"worker {rank}", host, argv, env, log, (attempt.board.fd, *fds, *ends), cwd=cwd
        )
        return replace(spec, stats=stats, stacks=stacks)


def own_hash_seed(environ: Mapping[str, str]) -> str | None:
    """Return the hash seed that a user sets for Python; None if Python draws one. A fork would have the seed
    of its parent process instead.
    """
    seed = environ.get("PYTHONHASHSEED", "")
    return None if seed in ("", "random") else seed


def _size_bytes(folder: Path) -> int:
    """Count the bytes of a folder's files; its user may change it meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size
    return size


def traffic_of(layout: Layout, mtu: int, lanes: int | None) -> Traffic:
    """Describe where a job sends its gradients, for its observation."""
    hosts = tuple(addresses.host_name(*host) for host in layout.workers)
    server = addresses.host_name(*layout.server) if layout.server else None
    return Traffic(layout.transport, hosts, server, mtu, layout.forest, lanes)


def settings_of(
    job: int, layout: Layout, admission: Admission | None, rate_mbps: float | None, rank: int
) -> tuple[SumSettings, list[int]]:
    """Make a worker's settings for summing, sent at its start or through its gate, with the descriptors that
    they name. `rate_mbps` is its link's rate if that differs from the topology's.
    """
    endpoint = admission.worker_env(rank) if admission else None
    if endpoint and rate_mbps is not None:
        endpoint = replace(endpoint, rate_mbps=rate_mbps)
    sums = SumSettings(
        system=layout.system,
        transport=layout.transport,
        endpoint=endpoint,
        ps=service_address(job, layout),
        ps_host=addresses.host_name(*layout.server) if layout.server else None,
        service=layout.service.name if layout.service else "parameter server",
    )
    return sums, admission.worker_fds(rank) if admission else []
