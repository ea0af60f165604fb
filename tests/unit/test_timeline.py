"""The timeline that a process group writes of its script: a real DDP job of one worker, without a network."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client.environment import CHECKOUT
from testbed.jobs.board import JobBoard
from testbed.jobs.environment import VARIABLE
from testbed.telemetry.timelines import (
    ASKED,
    RESUMED,
    SUMMED,
    WAITED,
    Row,
    Timeline,
    read,
    steps,
    window,
)
from testbed.wire import settings
from tests.unit.made_settings import worker
from workloads import timeline as written
from workloads.sums import native

ITERATIONS, PAUSE_S = 7, 0.030
SCRIPT = f"""
    import time
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("inc")
    net = nn.Sequential(*(nn.Linear(300, 300) for _ in range(3)))
    model = DistributedDataParallel(net, bucket_cap_mb=0.3)
    for _ in range({ITERATIONS}):
        model(torch.ones(4, 300)).sum().backward()
        time.sleep({PAUSE_S})
    value = torch.ones(1000)
    dist.all_reduce(value)
    work = dist.all_reduce(value, async_op=True)
    time.sleep({PAUSE_S})
    work.wait()
    dist.broadcast(value, 0)
    dist.destroy_process_group()
"""


def left_by(folder: Path, text: str) -> dict[str, Any]:
    """The statistics of a job of one worker that runs this script."""
    script, stats = folder / "script.py", folder / "stats.json"
    script.write_text(textwrap.dedent(text))
    with JobBoard(1) as board:
        described = settings.written(worker(board.settings(), folder, hosts=("localhost",)))
        rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29479"}
        place = {"PYTHONPATH": str(CHECKOUT), "GLOO_SOCKET_IFNAME": "lo", VARIABLE: described}
        ended = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, **rank, **place},
            pass_fds=[board.fd],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    contents: dict[str, Any] = json.loads(Path(stats).read_text())
    return contents


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return left_by(tmp_path_factory.mktemp("timeline"), SCRIPT)


BESIDE_GLOO = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from workloads.hook import inc_hook

    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(300, 300))
    model.register_comm_hook(None, inc_hook)
    for _ in range(5):
        model(torch.ones(4, 300)).sum().backward()
    dist.destroy_process_group()
"""
WITH_A_MESH = """
    import torch
    import torch.distributed as dist

    dist.init_process_group("inc")
    part = dist.new_group([0])
    for _ in range(5):
        dist.all_reduce(torch.ones(1000))
        dist.all_reduce(torch.ones(1000), group=part)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("script", [BESIDE_GLOO, WITH_A_MESH], ids=["hook over gloo", "second group"])
def test_a_group_beside_another_leaves_no_timeline_as_it_does_not_see_what_the_script_waits_for(
    script: str, tmp_path: Path
) -> None:
    statistics = left_by(tmp_path, script)
    assert statistics["allreduce"]
    assert read(statistics) is None


@pytest.fixture
def timeline(statistics: dict[str, Any]) -> Timeline:
    recorded = read(statistics)
    assert recorded is not None
    return recorded


def test_ddp_waits_once_an_iteration_for_all_that_it_asked_for(timeline: Timeline) -> None:
    words = "".join("awr"[row.what] for row in timeline.rows)
    assert (
        words.count("aaawr") >= ITERATIONS - 1
    )  # three buckets, then the end of the backward pass; the first time one
    for before, after in zip(timeline.rows, timeline.rows[1:], strict=False):
        if before.what == WAITED:
            assert (after.what, after.number) == (RESUMED, before.number)
            ready_ns = timeline.collectives[after.number].ready_ns
            assert 0 < ready_ns <= after.at_ns
    assert all(collective.ready_ns for collective in timeline.collectives)


def test_the_time_between_iterations_is_computing(timeline: Timeline) -> None:
    span = window([timeline])
    assert span is not None
    assert (span.rounds, span.left_out) == (ITERATIONS - 2, 2)
    computing_s = sum(step.compute_s for step in steps(timeline, span))
    assert span.rounds * PAUSE_S < computing_s < span.rounds * PAUSE_S * 3


def test_a_row_says_how_long_its_thread_had_a_core(timeline: Timeline) -> None:
    slept = [after for before, after in pairs(timeline) if after.at_ns - before.at_ns > PAUSE_S * 1e9]
    assert len(slept) >= ITERATIONS
    assert all(
        0 <= after.ran_ns <= after.at_ns - before.at_ns + 1_000_000 for before, after in pairs(timeline)
    )
    own = written.Timeline()
    number, until_s = own.ask(4, SUMMED), time.thread_time() + PAUSE_S
    while time.thread_time() < until_s:
        pass
    own.wait(number)
    time.sleep(PAUSE_S)
    own.is_there(number)
    own.resume(number)
    summary = read({"timeline": own.summary()})
    assert summary is not None
    _, busy, idle = summary.rows
    assert PAUSE_S <= busy.ran_ns / 1e9 < 2 * PAUSE_S
    assert idle.ran_ns / 1e9 < PAUSE_S / 3


def pairs(timeline: Timeline) -> Iterator[tuple[Row, Row]]:
    return itertools.pairwise(timeline.rows)


def test_a_script_that_waits_for_itself_is_seen(timeline: Timeline) -> None:
    kinds = [(row.what, timeline.collectives[row.number].summed) for row in timeline.rows[-9:]]
    assert kinds == [(what, True) for what in (ASKED, WAITED, RESUMED) * 2] + [
        (what, False) for what in (ASKED, WAITED, RESUMED)
    ]
    asked, waited = timeline.rows[-6], timeline.rows[-5]
    assert waited.at_ns - asked.at_ns > PAUSE_S * 1e9  # it computed while the sum was under way


def test_a_timeline_ends_where_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    long = written.Timeline(most_rows=7)
    for _ in range(9):
        number = long.ask(4, SUMMED)
        long.wait(number)
        long.is_there(number)
        long.resume(number)
    left = long.summary()
    assert (len(left["rows"]), len(left["sums"])) == (7, 3)
    assert read({"timeline": left}) is not None


def test_spans_of_a_long_job_are_counted_and_the_first_are_listed() -> None:
    def summary(most: int) -> dict[str, Any]:
        statistics = native.Spans(most)
        for at in range(100):  # each overlaps the one before by a quarter, but for every tenth
            statistics.add(at - 0.25 * (at % 10 > 0), at + 1.0 - (at % 10 == 9) * 0.5, 4)
        summary: dict[str, Any] = statistics.summary()
        return summary

    whole, cut = summary(1000), summary(31)
    assert len(whole["spans"]) == 100
    assert cut == {**whole, "spans": whole["spans"][:31]}
    assert (cut["count"], cut["bytes"], cut["busy_s"]) == (100, 400, pytest.approx(95.0))
