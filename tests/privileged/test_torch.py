"""Torch's own library over a job's sums: hooks, join, DTensor, sharding, compiled models, the profiler, loss
scaling, groups made again.

The cases are in jobs/habits.py. One job runs all of them for a system; a case that hangs is ended after its
own time.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privileged.commands import ROOT, Testbed, command, running
from tests.privileged.jobs import habits, mesh

JOBS = Path(__file__).resolve().parent / "jobs"
# Torch 2.11's debugging has no coalesced collectives, around gloo either.
SHARDED = () if importlib.metadata.version("torch").startswith("2.11.") else ("dtensor",)
ELSEWHERE = ("mismatched_collectives", "sharded_and_parallel")  # with settings of their own
BY_ALL = ("power_sgd", "join", "sums_within_then", "gradients_that_are_not_finite", "begun_again")

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as it:
        yield it


def run(
    testbed: Testbed, *words: str, env: dict[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return command("testbed.run", "--name", testbed.name, *words, env=env or {}, cwd=cwd)


def outcomes(ended: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """Return the words of each worker about each case."""
    words: dict[str, list[str]] = {}
    for name, outcome in re.findall(r"\] habit: (\w+): (.*)", ended.stdout):
        words.setdefault(name, []).append(outcome)
    return words


@pytest.fixture(scope="module")
def by_inc(testbed: Testbed) -> subprocess.CompletedProcess[str]:
    names = [name for name in habits.HABITS if name not in ELSEWHERE]
    return run(testbed, "--place", "u1:3", str(JOBS / "habits.py"), *names)


@pytest.mark.parametrize("name", [name for name in habits.HABITS if name not in ELSEWHERE])
def test_a_habit_of_torchs(name: str, by_inc: subprocess.CompletedProcess[str]) -> None:
    assert outcomes(by_inc).get(name) == ["ok"] * 3, by_inc.stdout[-4000:] + by_inc.stderr


def test_what_is_gathered_broadcast_and_scattered_is_as_gloo_has_it(testbed: Testbed, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    ended = run(testbed, "--preload", "--place", "u1:3", "--json", str(result), str(JOBS / "carried.py"))
    said = Counter(re.findall(r"\] carried: (\w+): (.*)", ended.stdout))
    names = ("gathered", "gathered_oddly", "broadcast", "scattered", "among_sums", "coalesced")
    assert said == {(name, "ok"): 3 for name in names}, ended.stdout[-4000:] + ended.stderr
    assert json.loads(result.read_text())["bytes_by"]["packets"] > 0


@pytest.mark.parametrize("sync", ["ring", "ps"])
def test_what_waits_within_callbacks_works_with_every_kind_of_sums(testbed: Testbed, sync: str) -> None:
    words = ("--preload", "--place", "u1:2", "--sync", sync)
    ended = run(testbed, *words, str(JOBS / "habits.py"), *BY_ALL)
    assert outcomes(ended) == {name: ["ok"] * 2 for name in BY_ALL}, ended.stdout + ended.stderr
    assert ended.returncode == 0


def groups_of(result: Path) -> dict[tuple[int, ...], dict[str, int]]:
    """Return the bytes by way of each group of a job, by its workers."""
    return {tuple(row["workers"]): row["bytes_by"] for row in json.loads(result.read_text())["groups"]}


def test_a_mesh_of_two_dimensions_trains(testbed: Testbed, tmp_path: Path) -> None:
    """Its rows, by which layers are parallel, sum in the network."""
    name, result = "sharded_and_parallel", tmp_path / "result.json"
    words = ("--preload", "--place", "u1:2,u2:2", "--json", str(result))
    ended = run(testbed, *words, str(JOBS / "habits.py"), name)
    assert outcomes(ended) == {name: ["ok"] * 4}, ended.stdout + ended.stderr
    assert all(groups_of(result)[ranks]["packets"] for ranks in ((0, 1), (2, 3)))


def test_groups_of_a_mesh_sum_in_the_network_by_trees_of_their_own(testbed: Testbed, tmp_path: Path) -> None:
    result, names = tmp_path / "result.json", ("all_at_once", "small_and_uneven", "made_again", "intruded")
    words = ("--preload", "--place", "u1:2,u2:2", "--json", str(result))
    ended = run(testbed, *words, str(JOBS / "mesh.py"), *names)
    assert [ended.stdout.count(f"mesh: {name}: ok") for name in names] == [4] * len(names), (
        ended.stdout + ended.stderr
    )
    report, elements = json.loads(result.read_text()), sum(mesh.LENGTHS)
    again, uneven, guarded = mesh.TURNS * 1003, 1 + 1003 + 2, 20 * 7001
    pairs = {(0, 1): uneven, (2, 3): uneven + guarded, (0, 2): again, (1, 3): again}
    for ranks, by in groups_of(result).items():
        exact = {(0, 1): 16}.get(ranks, 0)  # two workers' two elements, with a NaN
        assert by.get("gloo", 0) == exact
        assert by["packets"] == 2 * 4 * (elements + pairs[ranks]) - exact, ranks
    assert set(groups_of(result)) == set(pairs)
    assert not [note for note in report["notes"] if "gloo" in note]


def test_eight_workers_groups_sum_over_links_that_lose_and_wait_for_one_that_is_stopped(
    testbed: Testbed, tmp_path: Path
) -> None:
    result, names = tmp_path / "result.json", ("all_at_once", "one_stops")
    faults = ("testbed.fault", "--name", testbed.name)
    assert command(*faults, "set", "u1h1", "u1h3", "u2h2", "u1o1", "--loss", "1%").returncode == 0
    try:
        words = ["--preload", "--place", "u1:4,u2:4", "--json", str(result), str(JOBS / "mesh.py")]
        ended = run(testbed, *words, *names)
    finally:
        assert command(*faults, "clear", "all").returncode == 0
    assert [ended.stdout.count(f"mesh: {name}: ok") for name in names] == [8] * len(names), (
        ended.stdout + ended.stderr
    )
    assert ended.returncode == 0, ended.stderr
    rows, columns = [(0, 1, 2, 3), (4, 5, 6, 7)], [(at, at + 4) for at in range(4)]
    groups = groups_of(result)
    assert set(groups) == {*rows, *columns}
    assert all(by["packets"] > 0 and "gloo" not in by for by in groups.values()), groups


@pytest.mark.parametrize("case", ["one_ends", "one_ends_gathering"])
def test_a_worker_that_ends_while_its_group_sums_or_gathers_is_named(testbed: Testbed, case: str) -> None:
    """The next test has all slots again."""
    ended = run(testbed, "--preload", "--place", "u1:2,u2:2", str(JOBS / "mesh.py"), case)
    assert ended.returncode == 1
    assert "worker 2 on u2h1 was ended by SIGKILL" in ended.stdout + ended.stderr


def test_groups_without_room_sum_by_gloo_and_have_a_note(testbed: Testbed, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    script = str(JOBS / "mesh.py")
    ended = run(testbed, "--place", "u1:2", "--json", str(result), script, "more_than_fit")
    assert ended.stdout.count("mesh: more_than_fit: ok") == 2, ended.stdout + ended.stderr
    by, vector_bytes = groups_of(result)[0, 1], 2 * 4 * 1003
    assert by == {"packets": 2 * 6 * vector_bytes, "gloo": 2 * 2 * vector_bytes}, "all slots came back"
    (note,) = [note for note in json.loads(result.read_text())["notes"] if "gloo" in note]
    assert note.startswith("the sums of workers 0, 1 among themselves went by gloo (u1: no 42 of its 512 ")


@pytest.mark.parametrize(
    ("options", "cases"),
    [
        ([], (*SHARDED, "mismatched_collectives", "begun_again")),
        (["--preload"], ("mismatched_collectives",)),
    ],
    ids=["started", "of a fork"],
)
def test_torchs_debugging_finds_mismatched_collectives(
    testbed: Testbed, options: list[str], cases: tuple[str, ...]
) -> None:
    ended = run(
        testbed,
        *(*options, "--place", "u1:2", str(JOBS / "habits.py"), *cases),
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    )
    assert outcomes(ended) == {name: ["ok"] * 2 for name in cases}, ended.stdout + ended.stderr


def test_strictly_finite_gradients_are_an_error_and_the_group_goes_on(testbed: Testbed) -> None:
    script = str(JOBS / "not_finite.py")
    strict = run(testbed, "--place", "u1:2", "--strict-finite", script)
    assert strict.returncode == 0, strict.stdout + strict.stderr
    error = "RuntimeError: NotFiniteError: 1 of 2 workers have NaN or infinity in their gradients"
    assert strict.stdout.count(error) == 4
    usual = run(testbed, "--place", "u1:2", script)
    assert usual.stdout.count("sum: nan 2.0 2.0") == 4, usual.stdout + usual.stderr
    assert strict.stdout.count("after: 2.0") == usual.stdout.count("after: 2.0") == 2


@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["started", "of a fork"])
def test_a_child_of_a_worker_is_told_why_it_has_no_sums(
    testbed: Testbed, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "spawns.py").write_text(
        "import torch.distributed as dist\n"
        "import torch.multiprocessing as mp\n"
        "def train(rank):\n"
        "    dist.init_process_group('inc')\n"
        "if __name__ == '__main__':\n"
        "    print('key:', mp.current_process().authkey.hex(), flush=True)\n"
        "    mp.spawn(train, nprocs=1)\n"
    )
    ended = run(testbed, *options, "--place", "u1:2", "spawns.py", cwd=tmp_path)
    assert ended.returncode == 1
    assert len(set(re.findall(r"key: (\w+)", ended.stdout))) == 2, "nobody else has a worker's key"
    for rank in (0, 1):
        assert f"this process was started by worker {rank} and not by `testbed run`" in ended.stdout


def test_a_group_of_another_size_than_the_job_is_refused(testbed: Testbed, tmp_path: Path) -> None:
    script = tmp_path / "fewer.py"
    script.write_text(
        "import os\n"
        "import torch.distributed as dist\n"
        "os.environ['WORLD_SIZE'] = '2'\n"
        "if int(os.environ['RANK']) < 2:\n"
        "    dist.init_process_group('inc')\n"
    )
    ended = run(testbed, "--place", "u1:3", str(script))
    assert ended.returncode == 1
    assert ended.stdout.count("world_size 2 does not fit this job's 3 workers") == 2


def test_forks_of_a_worker_have_gloo_and_are_told_why_they_have_no_sums(
    testbed: Testbed, tmp_path: Path
) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import os\n"
        "import torch\n"
        "import torch.distributed as dist\n"
        "import torch.multiprocessing as mp\n"
        "def train(rank, world, *backend):\n"
        "    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR='localhost')\n"
        "    dist.init_process_group(*backend)\n"
        "    value = torch.ones(3)\n"
        "    dist.all_reduce(value)\n"
        "    print(f'sum: {value[0].item()}\\n', end='', flush=True)\n"
        "    dist.destroy_process_group()\n"
        "mp.start_processes(train, (3,), nprocs=3, start_method='fork')\n"
        "mp.start_processes(train, (2, 'inc'), nprocs=2, start_method='fork')\n"
    )
    ended = run(testbed, "--preload", "--place", "u1:2", str(script))
    assert ended.stdout.count("sum: 3.0") == 6, ended.stdout
    assert ended.returncode == 1
    for rank in (0, 1):
        assert f"this process was started by worker {rank} and not by `testbed run`" in ended.stdout


GLOOS = {
    "'gloo'": "the script made no process group of the backend inc; workers sent ",
    "'inc'": "gloo carried all that inc was asked for (",
}


@pytest.mark.parametrize(
    ("backend", "sync", "where"),
    [
        ("'gloo'", "inc", "in the network"),
        ("'inc'", "inc", "in the network"),
        ("'gloo'", "ps", "by the parameter server"),
    ],
)
def test_a_job_that_sums_nothing_where_it_was_to_is_told_so(
    testbed: Testbed, tmp_path: Path, backend: str, sync: str, where: str
) -> None:
    result = tmp_path / "result.json"
    script = summing(tmp_path, f"dist.init_process_group({backend})", "float64")
    ended = run(testbed, "--preload", "--place", "u1:2", "--sync", sync, "--json", str(result), script)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(result.read_text())
    (note,) = report["notes"]
    assert note.startswith(f"nothing was summed {where}: {GLOOS[backend]}")
    assert ended.stderr.count(note) == 1 + (report["verdict"]["trustworthy"] is None)
    assert note in [each["text"] for each in report["verdict"]["notes"]]
    assert report["bytes_by"] == ({"gloo": 2 * 8 * 1003} if backend == "'inc'" else {})


def summing(folder: Path, before: str, dtype: str) -> str:
    """Return the path of a script that makes one sum, after these words."""
    script = folder / "sums.py"
    script.write_text(
        "import os\n"
        "import torch\n"
        "import torch.distributed as dist\n"
        f"{before}\n"
        f"dist.all_reduce(torch.ones(1003, dtype=torch.{dtype}))\n"
        "dist.destroy_process_group()\n"
    )
    return str(script)


@pytest.mark.parametrize(
    ("options", "before"),
    [
        (["--preload"], "dist.init_process_group()"),
        (["--preload", "--init-group"], "assert dist.is_initialized()"),
        (["--init-group"], "assert os.environ['ACCELERATE_USE_CPU'] and dist.get_backend() == 'inc'"),
    ],
    ids=["by default", "made before, of a fork", "made before"],
)
def test_who_leaves_the_choice_to_torch_sums_in_the_network(
    testbed: Testbed, tmp_path: Path, options: list[str], before: str
) -> None:
    result = tmp_path / "result.json"
    script = summing(tmp_path, before, "float32")
    ended = run(testbed, *options, "--place", "u1:2", "--json", str(result), script)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(result.read_text())
    assert (report["bytes_by"], report["notes"]) == ({"packets": 2 * 4 * 1003}, [])


def test_ddp_over_a_group_that_names_no_backend(testbed: Testbed, tmp_path: Path) -> None:
    """And over one that is made of it."""
    script = tmp_path / "unnamed.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "dist.init_process_group()\n"
        "mesh = dist.device_mesh.init_device_mesh('cpu', (2,))\n"
        "for group in (None, dist.new_group([0, 1]), mesh.get_group()):\n"
        "    model = DDP(torch.nn.Linear(64, 64), process_group=group)\n"
        "    model(torch.ones(4, 64)).sum().backward()\n"
        "print('trained by', dist.get_backend())\n"
    )
    for sync in ("inc", "ring"):
        ended = run(testbed, "--preload", "--place", "u1:2", "--sync", sync, str(script))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stdout.count("trained by inc") == 2


def test_a_script_may_end_without_destroying_its_group(testbed: Testbed, tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(
        "import torch\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('inc')\n"
        "work = dist.all_reduce(torch.ones(1003), async_op=True)\n"
        "future = work.get_future().then(lambda done: done.value()[0])\n"
        "work.wait()\n"
        "print('sum:', future.wait()[0].item(), work.outcomes[0].contributors)\n"
        "part = dist.new_group([0, 1])\n"
    )
    ended = run(testbed, "--place", "u1:2", str(script))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("sum: 2.0 2") == 2
    assert "terminate" not in ended.stdout
