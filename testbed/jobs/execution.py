"""A job's processes from what they are told to what they left: its folder, its workers and parameter server,
its report.

Owns no decision: where the job runs and how it sums is in the `Job`; what its network gave it is the
admission, or its gates.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from testbed.aggregation.admission import Admission
from testbed.contract.transports import SERVER
from testbed.emulation.spawner import Started
from testbed.jobs import result
from testbed.jobs.board import JobBoard
from testbed.jobs.environment import PS_PORT_BASE, VARIABLE, job_description, worker_environment
from testbed.jobs.gates import Gates
from testbed.jobs.job import Job
from testbed.jobs.launch import Emit, JobProcesses, Outcome, Process, ProcessSpec
from testbed.jobs.leftovers import end_leftovers
from testbed.jobs.template import Template
from testbed.jobs.user_files import UserFiles
from testbed.runtime import Caller, remove_tree
from testbed.telemetry.demand import Traffic
from testbed.topology import addresses


class Spawning(Protocol):
    """What this needs of the fabric (testbed/emulation/fabric.py)."""

    def popen_in(self, host: str, argv: Sequence[str], **options: Any) -> Started: ...
    def host_namespace(self, host: str) -> Path: ...


class Executor:
    """Starts the jobs of the testbed `name`; `root` holds their folders; workers of jobs that ask for it are
    forks of `template`; what is its users' is reached through `files`. Thread-safe: it keeps nothing else.
    """

    def __init__(self, name: str, hosts: Spawning, root: Path, template: Template, files: UserFiles) -> None:
        self._name, self._hosts, self._root, self._template, self.files = name, hosts, root, template, files

    def close(self) -> None:
        """Ends the template's process, if there is one."""
        self._template.close()

    def folder_of(self, job: Job) -> Path:
        return self._root / str(job.id)

    @contextlib.contextmanager
    def folder(self, job: Job) -> Iterator[Path]:
        """The job's own, which is its user's. It stays when its logs are in it."""
        folder = self.folder_of(job)
        remove_tree(folder)  # of the job before, 65,535 jobs ago
        folder.mkdir(mode=0o700)
        os.chown(folder, job.request.caller.uid, job.request.caller.gid)
        try:
            yield folder
        finally:
            if job.request.logs is not None:
                remove_tree(folder)

    def attempt(
        self,
        job: Job,
        admission: Admission | None,
        folder: Path,
        number: int,
        emit: Emit,
        stop: Callable[[], str | None],
        gates: Gates | None = None,
    ) -> tuple[list[ProcessSpec], Outcome]:
        """All processes of the job, from start to end, in its present generation. With gates, the workers
        wait there to be told what their network gave them, and the parameter server, if the job has one, runs
        already.
        """
        request = job.request
        with (
            JobBoard(len(job.hosts), ps_address_of(job) is not None) as board,
            contextlib.ExitStack() as stack,
        ):
            job.board = board
            stack.callback(setattr, job, "board", None)
            specs = self._specs(job, board, admission, folder, number, gates)
            popen = self._fork if request.preload else self._popen

            def open_logs(paths: Sequence[Path]) -> list[int]:
                return self.files.open_logs(paths, request.caller)

            with JobProcesses(popen, open_logs, request.caller, request.cwd, board, emit) as processes:
                # before a worker is at its gate, for its job may then lose its parameter server
                job.processes = processes
                stack.callback(setattr, job, "processes", None)
                processes.start(specs)
                if gates:
                    gates.are_inherited()
                else:
                    job.state = "running"
                outcome = processes.wait(stop, lambda: job.failure)
            job.state = "ended"
            job.notes += outcome.notes
            end_leftovers(VARIABLE, [spec.env[VARIABLE] for spec in specs if VARIABLE in spec.env])
            return specs, outcome

    def report(self, job: Job, specs: Sequence[ProcessSpec], outcome: Outcome) -> dict[str, Any]:
        """What every job's result says of it and its workers. The job's notes get a line for statistics that
        are not in it, although a worker left them.
        """
        workers = sorted((spec for spec in specs if not spec.serves), key=lambda spec: spec.index)
        stats = self._stats(job, [spec.stats for spec in workers if spec.stats is not None])
        return {
            "id": job.id,
            "testbed": self._name,
            "script": job.request.script,
            "sync": job.layout.system,
            "notes": job.notes,
            "placement": [addresses.unit_name(unit) for unit, _ in job.layout.workers],
            "ps_host": job.ps_host,
            "failure": outcome.failure,
            "workers": [
                {
                    "rank": spec.index,
                    "host": spec.host,
                    "exit_code": outcome.exit_codes.get(spec.index),
                    "log": str(spec.log),
                    "stats": left,
                }
                for spec, left in zip(workers, stats, strict=True)
            ],
        }

    def _stats(self, job: Job, paths: Sequence[Path]) -> list[dict[str, Any] | None]:
        """The workers' statistics, by rank."""
        stats: list[dict[str, Any] | None] = []
        for rank, content in enumerate(self.files.read(paths, job.request.caller, result.MOST_BYTES)):
            left, lack = None, None
            if isinstance(content, OSError):
                lack = content.strerror
            elif content is not None:
                try:
                    left = result.parse_stats(content)
                except result.StatsError as error:
                    lack = str(error)
            if lack is not None:
                job.notes.append(f"the statistics that worker {rank} left are not in the result: {lack}")
            stats.append(left)
        return stats

    def _specs(
        self,
        job: Job,
        board: JobBoard,
        admission: Admission | None,
        folder: Path,
        attempt: int,
        gates: Gates | None,
    ) -> list[ProcessSpec]:
        request, specs = job.request, []
        logs = request.logs or folder
        start = f".restart-{attempt}" if attempt else ""
        ps_address = ps_address_of(job)
        if ps_address and job.ps_host:
            address, port = ps_address
            argv = [
                sys.executable,
                "-u",
                "-m",
                "workloads.parameter_server",
                "--bind",
                address,
                "--port",
                str(port),
            ]
            argv += ["--workers", str(len(job.hosts)), "--job", str(job.id)]
            env = worker_environment(request.environ, request.caller)
            specs.append(
                ProcessSpec(
                    len(job.hosts),
                    f"{job.ps_host} ps",
                    "the parameter server",
                    job.ps_host,
                    tuple(argv),
                    env,
                    logs / f"ps{start}.log",
                    serves=True,
                )
            )
        for rank, host in enumerate(job.hosts):
            engine = admission.worker_env(rank) if admission else {}
            fds = admission.worker_fds(rank) if admission else []
            stats = folder / f"stats-{rank}{start}.json"
            description = job_description(
                self._name,
                job.id,
                job.generation,
                rank,
                job.layout.system,
                job.layout.transport,
                job.hosts,
                board.settings(),
                stats,
                engine,
                ps_address,
                job.ps_host,
                gates.fd(rank) if gates else None,
            )
            env = worker_environment(
                request.environ,
                request.caller,
                rank=rank,
                world_size=len(job.hosts),
                master=addresses.host_ip(*job.layout.workers[0]),
                job_id=job.id,
                description=description,
                attempt=attempt,
            )
            argv = [sys.executable, "-u", request.script, *request.arguments]
            log = logs / f"worker-{rank}{start}.log"
            fds += [gates.fd(rank)] if gates else []
            specs.append(
                ProcessSpec(
                    rank, host, f"worker {rank}", host, tuple(argv), env, log, (board.fd, *fds), stats=stats
                )
            )
        return specs

    def _fork(self, spec: ProcessSpec, caller: Caller, cwd: str, stdout: int) -> Process:
        """A worker as a fork; a parameter server, which needs no torch, as a process of its own."""
        if spec.serves:
            return self._popen(spec, caller, cwd, stdout)
        return self._template.popen(
            self._hosts.host_namespace(spec.host),
            spec.argv[2:],
            uid=caller.uid,
            gid=caller.gid,
            groups=caller.groups,
            env=spec.env,
            cwd=cwd,
            stdout=stdout,
            pass_fds=spec.pass_fds,
        )

    def _popen(self, spec: ProcessSpec, caller: Caller, cwd: str, stdout: int) -> Started:
        return self._hosts.popen_in(
            spec.host,
            spec.argv,
            uid=caller.uid,
            gid=caller.gid,
            groups=caller.groups,
            env=spec.env,
            cwd=cwd,
            stdout=stdout,
            stderr=stdout,
            pass_fds=spec.pass_fds,
            new_session=True,
        )


def ps_address_of(job: Job) -> tuple[str, int] | None:
    """Where the job's parameter server listens; None for one that sums otherwise."""
    if job.layout.transport != SERVER or job.layout.server is None:
        return None
    return addresses.host_ip(*job.layout.server), PS_PORT_BASE + job.id % 1000


def traffic_of(job: Job, mtu: int) -> Traffic:
    """Where the job's sums go."""
    return Traffic(job.layout.transport, tuple(job.hosts), job.ps_host, mtu, job.layout.forest)
