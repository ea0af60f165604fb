"""A folder for each worker: where its processes start, what still counts from their caller's, and who is told
when it cannot be had.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.aggregation.system import Layout
from testbed.client.caller import Caller
from testbed.emulation.enclosures import Enclosure
from testbed.emulation.spawner import Started
from testbed.errors import RequestError
from testbed.jobs import attempt as attempts
from testbed.jobs.attempt import Attempt, Executor
from testbed.jobs.board import JobBoard
from testbed.jobs.circuit_desk import CircuitDesk
from testbed.jobs.groups import Groups
from testbed.jobs.processes import Orders
from testbed.jobs.request import JobRequest
from testbed.jobs.user_files import UserFiles
from testbed.queue import queued, submission
from testbed.wire.transports import GLOO, SERVER
from tests.processes import ENCLOSURES, spawn

ME = Caller.of(os.geteuid())
SCRIPT = "import os, named\nprint(os.getcwd(), named.WHERE, os.environ['RANK'])\n"
RING = Layout("ring", ((1, 1), (1, 2)), GLOO)


class Hosts:
    """Starts processes on this machine, and knows in which folder."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    enclosed = ENCLOSURES.opened

    def popen_in(
        self, host: str, argv: Sequence[str], enclosure: Enclosure | None = None, **options: Any
    ) -> Started:
        self.entered.append(options["cwd"])
        return spawn(argv, enclosure, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A caller's folder with a script, and a module that it needs."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "named.py").write_text("WHERE = __file__\n")
    return tmp_path


def asked(folder: Path, **more: Any) -> JobRequest:
    request = {"script": "script.py", "arguments": [], "sync": "ring", "cwd": str(folder)}
    environ = {"PYTHONPATH": "lib:", "PATH": os.environ["PATH"]}
    return JobRequest.parse({**request, "environ": environ, "logs": str(folder), **more}, ME)


def refuse(asked: object) -> Any:
    raise AssertionError("no group is made in this test")


def run(folder: Path, request: JobRequest, layout: Layout = RING) -> tuple[list[str], list[str]]:
    """Return in which folders processes were started, and what the workers said."""
    hosts = Hosts()
    executor = Executor("t", hosts, folder, UserFiles(spawn))  # type: ignore[arg-type]
    said: list[str] = []
    count = len(layout.workers)
    with (
        JobBoard(count, layout.transport == SERVER) as board,
        Groups(count, refuse, refuse) as groups,
        CircuitDesk(1, count, mock.Mock()) as circuits,
    ):
        attempt = Attempt(
            job=1,
            generation=1,
            request=request,
            layout=layout,
            admission=None,
            rate_mbps=None,
            number=0,
            folder=folder,
            board=board,
            groups=groups,
            circuits=circuits,
            gates=None,
            emit=lambda event: said.append(event.output),
            started=lambda: None,
            orders=Orders(),
        )
        _, ending = executor.attempt(attempt)
    assert ending.failure is None, said
    return hosts.entered, said


def test_the_folders_of_ended_jobs_make_room_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest stays whatever its size, and so does that of a job which runs."""
    monkeypatch.setattr(attempts, "KEPT_BYTES", 25)
    executor = Executor("t", Hosts(), tmp_path, UserFiles(spawn))  # type: ignore[arg-type]
    request = JobRequest.parse(
        {"script": "s", "arguments": [], "sync": "ring", "cwd": "/", "environ": {}}, ME
    )

    def end(job: int, size: int) -> list[str]:
        with executor.folder(job, request) as folder:
            (folder / "worker-0.log").write_bytes(bytes(size))
            (folder / "gone").symlink_to("/nowhere")
            os.utime(folder, ns=(job, job))
        return sorted(path.name for path in tmp_path.iterdir())

    link = len("/nowhere")
    with executor.folder(1, request) as running:
        (running / "worker-0.log").write_bytes(bytes(1000))
        assert end(2, 10 - link) == ["1", "2"]
        assert end(3, 10 - link) == ["1", "2", "3"]
        assert end(4, 10 - link) == ["1", "3", "4"]
        assert end(5, 100) == ["1", "5"]
        os.utime(running, ns=(1, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5"]


def test_each_worker_starts_in_its_own_and_what_it_is_told_counts_from_its_callers(folder: Path) -> None:
    entered, said = run(folder, asked(folder, folder_per_worker=True))
    mine = [str(folder / f"worker-{rank}") for rank in (0, 1)]
    assert entered == mine
    module = folder / "lib" / "named.py"
    assert sorted(said) == [f"{mine[rank]} {module} {rank}" for rank in (0, 1)]
    again, _ = run(folder, asked(folder, folder_per_worker=True))
    assert again == mine, "they may be there already"


def test_a_module_is_found_from_its_callers_folder_wherever_it_starts(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "script.py").rename(folder / "package" / "train.py")
    environ = {"PYTHONPATH": "lib", "PATH": os.environ["PATH"]}
    module = {"script": "package.train", "module": True, "environ": environ}
    for folders in (True, False):
        entered, said = run(folder, asked(folder, folder_per_worker=folders, **module))
        assert sorted(said) == [f"{entered[rank]} {folder / 'lib' / 'named.py'} {rank}" for rank in (0, 1)]


def test_without_it_all_start_in_their_callers(folder: Path) -> None:
    entered, _ = run(folder, asked(folder))
    assert entered == [str(folder)] * 2
    assert not (folder / "worker-0").exists()


def test_a_folder_that_cannot_be_had_is_named_before_anything_starts(folder: Path) -> None:
    path = folder / "worker-1"
    path.touch()
    with pytest.raises(RequestError) as error:
        run(folder, asked(folder, folder_per_worker=True))
    assert str(error.value) == f"folder {path}: user {ME.user} cannot write there: File exists"
    assert not (folder / "worker-0.log").exists(), "no process was started"


def test_a_queued_jobs_folders_have_its_name_above_them(folder: Path) -> None:
    job = {"script": "script.py", "iterations": 1, "megabytes": 1, "workers": 2, "folder_per_worker": True}
    jobs = submission.parse({"jobs": [{**job, "copies": 2, "name": "a"}]}).jobs
    for spec in jobs:
        entered, _ = run(folder, queued.requested(asked(folder, logs=None), spec))
        assert entered == [str(folder / spec.name / f"worker-{rank}") for rank in (0, 1)]
    (other,) = submission.parse({"jobs": [{**job, "folder_per_worker": False}]}).jobs
    assert queued.requested(asked(folder), other).folders is None


def test_a_users_own_system_is_found_from_its_callers_folder(folder: Path) -> None:
    (folder / "own.py").write_text("class System:\n    pass\n")
    (folder / "script.py").write_text(
        "from testbed.plugins.user_class import load\n"
        "from workloads.job_env import JobEnv\n"
        "print(load('own.py:System', JobEnv.from_environ().asked_in).__module__)\n"
    )
    _, said = run(folder, asked(folder, folder_per_worker=True))
    assert said == ["users_own"] * 2
