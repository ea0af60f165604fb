"""Workers as forks of a process with torch loaded (`testbed submit --preload`): each a process of its own as
its user would have it.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.privileged.commands import ROOT, Testbed, command, pids_in_testbed, running, wait_for

SCRIPT = ROOT / "tests" / "privileged" / "jobs" / "whoami.py"
NOBODY = pwd.getpwnam("nobody")

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs", "torch")


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as it:
        yield it


def submit(
    testbed: Testbed, tmp_path: Path, *jobs: dict[str, Any], env: Mapping[str, str]
) -> tuple[int, str, Any]:
    file, result = tmp_path / "jobs.yaml", tmp_path / "result.json"
    file.write_text(json.dumps({"policy": "inc-fcfs", "jobs": list(jobs)}))  # JSON is YAML
    words = ["--name", testbed.name, "--preload", "--json", str(result), str(file)]
    ended = command("testbed.submit", *words, env=env)
    return (
        ended.returncode,
        ended.stdout + ended.stderr,
        json.loads(result.read_text()) if result.exists() else None,
    )


def job(name: str, out: Path, *words: str) -> dict[str, Any]:
    out.mkdir(exist_ok=True)
    out.chmod(0o777)
    arguments = [str(out), *words]
    sizes = {"workers": 2, "iterations": 1, "megabytes": 5_003 * 4e-6}
    return {"name": name, "script": str(SCRIPT), "arguments": arguments, **sizes}


def test_workers_are_their_users_and_nothing_of_the_template_is_left_in_them(
    testbed: Testbed, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents):  # where this user must get through
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    sudo = {"SUDO_USER": NOBODY.pw_name, "SUDO_UID": str(NOBODY.pw_uid), "SUDO_GID": str(NOBODY.pw_gid)}
    code, said, result = submit(
        testbed, tmp_path, job("one", tmp_path / "one"), env={"WHOAMI_MARK": "seen", **sudo}
    )
    assert code == 0, said
    workers = [json.loads((tmp_path / "one" / f"{rank}.json").read_text()) for rank in (0, 1)]
    for worker in workers:
        assert worker["uid"] == [NOBODY.pw_uid] * 3
        assert worker["gid"] == [NOBODY.pw_gid] * 3
        assert 0 not in worker["groups"]
        assert worker["argv"] == [str(SCRIPT), str(tmp_path / "one")]
        assert worker["path"] == str(SCRIPT.parent)
        assert worker["name"] == "__main__"
        assert (worker["marked"], worker["sudo"]) == ("seen", [])
        assert worker["cwd"] == str(ROOT)
        assert worker["leads"]
    assert workers[0]["namespace"] != workers[1]["namespace"]
    assert workers[0]["drawn"][0] != workers[1]["drawn"][0]
    assert workers[0]["drawn"][1] != workers[1]["drawn"][1]
    assert not any("/ns/net" in fd or fd.startswith("net:") for fd in workers[0]["fds"])
    (only,) = result["jobs"]
    assert [worker["exit_code"] for worker in only["run"]["workers"]] == [0, 0]


def test_they_are_forks_of_one_process_that_has_torch_and_their_exit_codes_are_told(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Forks of one process start at once: a limit on seconds would be one for the machine."""
    by_name = {"script": "tests.privileged.jobs.whoami", "module": True}  # as python -m has it
    jobs = [job("right", tmp_path / "right") | by_name, job("wrong", tmp_path / "wrong", "fail")]
    code, said, result = submit(testbed, tmp_path, *jobs, env={})
    assert code == 1, said
    assert "exited with code 7" in said
    ended = {job["name"]: job for job in result["jobs"]}
    assert ended["right"]["failure"] is None
    workers = [
        json.loads((tmp_path / name / f"{rank}.json").read_text())
        for name in ("right", "wrong")
        for rank in (0, 1)
    ]
    assert all(worker["had_torch"] for worker in workers)
    assert [worker["path"] for worker in workers] == [str(ROOT)] * 2 + [str(SCRIPT.parent)] * 2
    assert {(worker["name"], worker["argv"][0]) for worker in workers} == {("__main__", str(SCRIPT))}
    assert len({worker["parent"] for worker in workers}) == 1
    wait_for(lambda: not _workers(testbed), "no worker is left, dead or alive")


DRAWS = ROOT / "tests" / "privileged" / "jobs" / "draws.py"
SEEDED = {"torch", "torch's seed", "numpy", "random", "model"}  # by the script's seeds


def drawn(testbed: Testbed, *words: str, env: Mapping[str, str] | None = None) -> tuple[list[Any], str]:
    """Run the script that draws; return what each worker of each run drew, and what was said."""
    ended = command("testbed.run", "--name", testbed.name, "--place", "u1:2", *words, env=env or {})
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    lines = [line.partition("DRAWN ")[2] for line in ended.stdout.splitlines() if "DRAWN " in line]
    return [worker for line in lines for worker in json.loads(line)], said


def alike(workers: list[Any]) -> set[str]:
    """Return the names of what any two of these drew alike."""
    names = workers[0].keys() - {"parent"}
    return {name for name in names if len({each[name] for each in workers}) < len(workers)}


def test_workers_repeats_and_jobs_draw_anew_with_preload_as_without(testbed: Testbed) -> None:
    runs = ["--repeat", "2", str(DRAWS)]
    without, _ = drawn(testbed, *runs)
    forked = [*drawn(testbed, "--preload", *runs)[0], *drawn(testbed, "--preload", str(DRAWS))[0]]
    assert (len(without), len(forked)) == (4, 6)
    assert alike(without) == set()
    assert len({worker["parent"] for worker in forked}) == 1
    assert alike(forked) == {"hash"}, "the hash seed alone is of the process that they are forks of"


def test_seeds_of_the_users_own_are_heeded_with_preload_as_without(testbed: Testbed) -> None:
    seeded: list[Any] = []
    for words in ([], ["--preload"]):
        workers, said = drawn(testbed, *words, str(DRAWS), "seeded", env={"PYTHONHASHSEED": "5"})
        seeded += workers
        assert ("PYTHONHASHSEED=5 counts when Python starts" in said) == bool(words)
    plain, _ = drawn(testbed, "--preload", str(DRAWS), "seeded")
    for name in SEEDED:
        assert len({worker[name] for worker in [*seeded, *plain]}) == 1, name
    assert len({worker["hash"] for worker in seeded}) == 1
    assert alike(plain) == SEEDED | {"hash"}


def _workers(testbed: Testbed) -> list[int]:
    """Return the processes below the template: it and nobody else has its command line."""
    template = [pid for pid in pids_in_testbed(testbed.pid) if b"workloads.template" in _cmdline(pid)]
    return template[1:]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""
