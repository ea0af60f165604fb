"""The words on a job: its result, its environment, the names that its programs see."""

from __future__ import annotations

import errno
import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.jobs.attempt import Executor
from testbed.jobs.environment import worker_environment
from testbed.jobs.processes import Ending, ProcessSpec
from testbed.jobs.request import JobRequest
from testbed.jobs.result import (
    MOST_BYTES,
    StatsError,
    bytes_by_group,
    bytes_by_way,
    events_after,
    last_id,
    link_deltas,
    missing_statistics,
    parse_stats,
    unused,
    without_timelines,
)
from testbed.local.names import hosts_file
from testbed.messages.links import LinkDelta
from testbed.messages.result import GroupBytes, WorkerResult
from testbed.topology.catalogue import ready
from testbed.wire import calls
from testbed.wire.transports import GLOO, PACKETS, SERVER
from tests.unit import results
from workloads.job_env import VARIABLE

LAUNCHER = "distributed/elastic/agent/server/local_elastic_agent.py"  # of torch
ALICE = Caller(4242, 4242, (4242, 100), "alice", "/home/alice")


@dataclass(frozen=True)
class Link:
    rate_mbps: float | None
    bytes_ab: int
    bytes_ba: int
    drops: int
    device_drops: int = 0


def test_link_deltas() -> None:
    before, after = {"u1h1": Link(200.0, 10, 20, 1)}, {"u1h1": Link(200.0, 110, 220, 4, 1)}
    assert link_deltas(before, after) == [
        LinkDelta("u1h1", 200.0, bytes=300, bytes_up=100, bytes_down=200, drops=3, device_drops=1)
    ]


def test_events_during_a_job() -> None:
    history = [results.event(number) for number in (1, 2, 3)]
    assert last_id(history) == 3
    assert last_id([]) == 0
    assert events_after(history, 1) == (results.read_event(2), results.read_event(3))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "they are no JSON"),
        (b"{", "they are no JSON"),
        (b"\xff", "they are no JSON"),
        (b"[" * 100_000, "they are no JSON"),
        (b"[1]", "they are no JSON object"),
        (b'{"a": ' + b"[" * 900 + b"1" + b"]" * 900 + b"}", "they are nested more than 64 deep"),
        (b'{"a": "' + b"x" * MOST_BYTES + b'"}', f"they have {MOST_BYTES + 9} bytes; {MOST_BYTES} are read"),
        (b'{"a": [' + b"[]," * 600_000 + b"1]}", "they have more than 1000000 values"),
    ],
)
def test_stats_that_are_in_no_result_say_why(
    content: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics that are too long are not parsed: while Python's JSON is at work, nothing else in the
    process is.
    """
    if "bytes" in why or "values" in why:
        monkeypatch.setattr(json, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(StatsError) as raised:
        parse_stats(content)
    assert str(raised.value) == why


def test_the_most_that_a_worker_writes_is_read() -> None:
    """A timeline and spans as long as they get, of jobs that run for months."""
    at, size = 10**16, 2 * 10**9
    rows = [[2, 59_999, at, 10**12]] * calls.MOST_ROWS
    sums = [[size, 1, at]] * calls.MOST_ROWS
    spans = [[9_999_999.123456, 9_999_999.123456, size]] * calls.MOST_ROWS
    left = {"allreduce": {"spans": spans}, "timeline": {"sums": sums, "rows": rows}}
    assert parse_stats(json.dumps(left).encode()) == left


class Left(SimpleNamespace):
    """The content of the workers' files, in place of UserFiles."""

    def read(self, paths: list[Path], caller: Caller, most_bytes: int) -> list[bytes | OSError | None]:
        assert most_bytes == MOST_BYTES
        return [self.contents[path.name] for path in paths]


def test_a_result_says_which_statistics_it_lacks_and_why() -> None:
    contents = {
        "0": b'{"pushed": 3}',
        "1": None,  # a script that used no process group of ours
        "2": OSError(0, "it has 9000000 bytes"),
        "3": b"{",
    }
    executor = Executor("t", None, Path("/"), Left(contents=contents))  # type: ignore[arg-type]
    specs = [
        ProcessSpec(rank, "u1h1", f"worker {rank}", "u1h1", (), {}, Path("log"), stats=Path(str(rank)))
        for rank in range(4)
    ]
    workers, notes = executor.workers(specs, Ending({}, None, 1.0, False), ALICE)
    assert [worker.stats for worker in workers] == [{"pushed": 3}, None, None, None]
    assert notes == [
        "the statistics that worker 2 left are not in the result: it has 9000000 bytes",
        "the statistics that worker 3 left are not in the result: they are no JSON",
    ]


def test_a_result_is_without_timelines() -> None:
    left = [{"pushed": 3, "timeline": {"rows": [[0, 0, 1, 0]]}}, {}, None]
    workers = [WorkerResult(rank, "u1h1", 0, "log", stats=stats) for rank, stats in enumerate(left)]
    shown = without_timelines(workers)
    assert [worker.stats for worker in shown] == [{"pushed": 3}, {}, None]
    assert [worker.stats for worker in workers] == left, "what the bound is made of is as it was"


def test_stats_that_are_nested_as_deep_as_may_be_can_be_written() -> None:
    stats = parse_stats(('{"a": ' + "[" * 60 + "1" + "]" * 60 + "}").encode())
    assert json.dumps({"jobs": [stats]}, indent=2)


def test_a_result_says_how_many_bytes_went_which_way() -> None:
    workers = [{"bytes_by": {"packets": 4, "gloo": 3, "other": 9}}, {"bytes_by": {"packets": 5}}, None]
    assert bytes_by_way(workers) == {"packets": 9, "gloo": 3}
    for odd in ({"bytes_by": [1]}, {"bytes_by": {"gloo": "5"}}, {"bytes_by": {"gloo": True, "packets": -1}}):
        assert bytes_by_way([odd]) == {}


@pytest.mark.parametrize(
    ("transport", "where"), [(PACKETS, "in the network"), (SERVER, "by the parameter server")]
)
def test_a_job_that_summed_nothing_where_it_was_to_has_a_line(transport: str, where: str) -> None:
    by_gloo = {"bytes_by": {"gloo": 7}}
    for left, why in (
        ([None] * 2, "the script made no process group of the backend inc"),
        ([by_gloo], "gloo carried all that inc was asked for (7 bytes)"),
        ([{"rank": 0}], "inc was asked for nothing"),
    ):
        said = unused(transport, left, 48_300_000)
        assert said == f"nothing was summed {where}: {why}; workers sent 48.3 MB"
    assert unused(transport, [by_gloo, {"bytes_by": {transport: 1}}, None], 999_999) is None
    assert unused(GLOO, [None], 10**9) is None, "it is gloo's ring in any case"


def test_a_job_that_summed_little_where_it_was_to_has_a_line() -> None:
    left = [{"bytes_by": {PACKETS: 1_000_000, GLOO: 500_000}}] * 2
    assert unused(PACKETS, left, 5_400_000) is None, "so much may have been sent for these"
    assert unused(PACKETS, left, 10**9, starts=2) is None, "the first start may have sent it"
    assert unused(PACKETS, left, 10_700_000) is None
    assert unused(PACKETS, left, 10_900_000) == (
        "most was not summed in the network: 5.5 MB of the 10.9 MB that workers sent was traffic of other "
        "kinds"
    )


def test_environment_of_a_worker() -> None:
    environ = {
        "PATH": "/bin",
        "SUDO_UID": "4242",
        "HOME": "/root",
        "TORCHELASTIC_RUN_ID": "x",
        "MINE": "1",
        "PYTHONPATH": "/p",
    }
    env = worker_environment(
        environ,
        ALICE,
        rank=3,
        world_size=5,
        master="10.0.1.1",
        job_id=1007,
        description="{}",
        attempt=1,
        restarts=2,
    )
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == (
        "3",
        "5",
        "0",
        "1",
    )
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["GLOO_SOCKET_IFNAME"]) == (
        "10.0.1.1",
        "29507",
        "eth0",
    )
    assert (env["HOME"], env["USER"], env["MINE"], env[VARIABLE]) == ("/home/alice", "alice", "1", "{}")
    assert env["PYTHONPATH"].endswith(":/p")
    assert not [name for name in env if name.startswith("SUDO_")]
    assert {name: env[name] for name in env if name.startswith("TORCHELASTIC_")} == {
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "2",
        "TORCHELASTIC_RUN_ID": "1007",  # the job's own, whatever launched the command
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def test_a_worker_has_what_torchrun_gives_one() -> None:
    """The names are of torch's own launcher, to which scripts and libraries are written."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    text = (Path(torch.origin).parent / LAUNCHER).read_text()
    match = re.search(r"worker_env = \{(.*?)\n            \}", text, re.DOTALL)
    assert match is not None
    names = {name for name in re.findall(r'"([A-Z_]+)": ', match[1]) if "NCCL" not in name}
    assert {"GROUP_WORLD_SIZE", "ROLE_RANK", "TORCHELASTIC_MAX_RESTARTS"} <= names
    assert names <= set(worker_environment({}, ALICE, rank=0, world_size=1, job_id=1))


@pytest.mark.parametrize(("callers", "workers"), [({}, "1"), ({"OMP_NUM_THREADS": "3"}, "3")])
def test_a_worker_has_the_callers_number_of_threads(callers: dict[str, str], workers: str) -> None:
    assert worker_environment(callers, ALICE, rank=0)["OMP_NUM_THREADS"] == workers


def test_a_parameter_server_has_no_rank() -> None:
    assert "RANK" not in worker_environment({}, ALICE)


def request(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "script": "x.py",
        "arguments": ["a"],
        "sync": "ring",
        "place": "u1:2",
        "cwd": "/",
        "environ": {},
    }
    return {**base, **changes}


def test_a_job_runs_as_its_caller_whatever_the_request_says() -> None:
    parsed = JobRequest.parse(request(uid=0, gid=42, groups=[0], user="root"), ALICE)
    assert parsed.caller is ALICE
    assert (parsed.place, parsed.timeout_s) == (((1, 2),), None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"script": None}, "script: "),
        ({"script": "a\0b"}, "script: .*NUL"),
        ({"script": "\ud800"}, "script: "),
        ({"arguments": "abc"}, "arguments: abc; a list of texts is accepted"),
        ({"arguments": [1]}, "arguments: '1'; a text"),
        ({"cwd": "somewhere"}, "cwd: somewhere; an absolute path is accepted"),
        ({"logs": "logs"}, "logs: logs; an absolute path is accepted"),
        ({"environ": {"A=B": "c"}}, "environ: names and values"),
        ({"environ": {"A": 1}}, "environ: A: '1'; a text"),
        ({"limit_s": 1e999}, "limit_s: inf; a number of seconds above 0"),
        ({"limit_s": "5"}, "limit_s: 5; a number"),
        ({"restarts": 10**9}, "restarts: 1000000000; a whole number from 0 to 100"),
        ({"sync": "all"}, "--sync 'all'"),
    ],
)
def test_a_request_that_is_none_is_one_line(changes: dict[str, object], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        JobRequest.parse(request(**changes), ALICE)


def test_names_of_hosts_both_ways() -> None:
    lines = hosts_file(ready("default"), "box").splitlines()
    assert lines[:2] == ["127.0.0.1 localhost box", "::ffff:127.0.0.1 localhost"]
    assert "10.0.3.2 u3h2" in lines
    assert "::ffff:10.0.3.2 u3h2" in lines
    assert "10.0.4.254 u4" in lines


def test_bytes_are_told_by_group_and_what_a_worker_makes_up_is_not() -> None:
    row = {"workers": [0, 1], "bytes_by": {PACKETS: 40, GLOO: 8}}
    other = {"workers": [1, 2], "bytes_by": {GLOO: 4}}
    nonsense = [7, {}, {"workers": 3}, {"workers": [0, "1"]}, {"workers": [0, 9]}, {"workers": [[0]]}]
    groups: list[Any] = [[row], [other, row, *nonsense], "none"]
    stats = [*({"groups": each} for each in groups), None]
    assert bytes_by_group(stats) == (
        GroupBytes((0, 1), {PACKETS: 80, GLOO: 16}),
        GroupBytes((1, 2), {GLOO: 4}),
    )


@pytest.mark.parametrize(
    ("stats", "owing", "notes", "said"),
    [
        ([{}, {}], {0: 0, 1: 0}, [], None),
        ([None, None], {}, [], None),  # a script without a group of inc's leaves none
        (
            [None, None],
            {0: errno.ENOSPC, 1: errno.ENOSPC},
            [],
            "statistics of workers 0, 1 are missing: No space left on device",
        ),
        (
            [{}, None],
            {0: 0, 1: 0},
            [],
            "statistics of worker 1 are missing: it ended before they were written",
        ),
        ([None], {0: 0}, ["they are no JSON"], "statistics of worker 0 are missing: they are no JSON"),
        ([None], {}, ["they are no JSON"], "they are no JSON"),
    ],
)
def test_statistics_that_are_not_there(
    stats: list[dict[str, object] | None], owing: dict[int, int], notes: list[str], said: str | None
) -> None:
    assert missing_statistics(stats, owing, notes) == said
