"""A disk that is full, under what users ask to be written: each failure is one line, nothing half is left,
and the testbed goes on.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.utils import rdpcap

from tests.limits import CALL_S
from tests.privileged.commands import WAIT_S, Testbed, command, running, start, wait_for

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch")]

FULL = "No space left on device"
PRINTS = "import sys; sys.stdout.write('x' * 63 + '\\n'); sys.stdout.write(('y' * 63 + '\\n') * 40_000)"
SUMS = """
import torch, torch.distributed as dist
dist.init_process_group("inc")
for _ in range(20):
    dist.all_reduce(torch.ones(100_000))
dist.destroy_process_group()
print("summed")
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path_factory.mktemp("disk")
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True, timeout=CALL_S
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=CALL_S)


@pytest.fixture(scope="module")
def testbed(disk: Path) -> Iterator[Testbed]:
    """A testbed that comes up after the disk, so that it has it, too."""
    with running("rack") as made:
        yield made


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    for name, text in (("prints.py", PRINTS), ("sums.py", SUMS)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def full(disk: Path) -> Iterator[Path]:
    for left in disk.iterdir():
        left.unlink()
    filler = disk / "filler"
    with pytest.raises(OSError, match=FULL):
        filler.write_bytes(bytes(2 << 20))
    yield disk
    filler.unlink()


def run(testbed: Testbed, *argv: object) -> subprocess.CompletedProcess[str]:
    words = ("--name", testbed.name, "--place", "u1:2", "--preload")
    return command("testbed.run", *words, *map(str, argv))


def test_a_result_is_whole_or_not_there_and_the_one_before_stays(
    testbed: Testbed, full: Path, scripts: Path
) -> None:
    result = full / "result.json"
    done = run(testbed, "--json", result, scripts / "sums.py")
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"testbed run: --json {result}: {FULL}; job ")
    assert sorted(full.iterdir()) == [full / "filler"]
    result.touch()
    done = run(testbed, "--json", result, scripts / "sums.py")
    assert (done.returncode, result.read_bytes()) == (3, b"")


def test_logs_lack_output_and_say_so_and_the_job_is_done(testbed: Testbed, disk: Path, scripts: Path) -> None:
    done = run(testbed, "--sync", "ring", "--logs", disk, scripts / "prints.py")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        log = disk / f"worker-{rank}.log"
        assert f"log {log}: {FULL}: it lacks output" in done.stderr
        log.unlink()


def test_a_capture_ends_with_a_whole_frame_and_says_why(testbed: Testbed, disk: Path, scripts: Path) -> None:
    # logs that were unlinked take room until the daemon has closed them, which may be after the job's end
    wait_for(lambda: shutil.disk_usage(disk).used == 0, "the logs of the job before are gone")
    file = disk / "u1h1.pcap"
    argv = ("u1h1", "--name", testbed.name, "--output", str(file), "--seconds", "100")
    with start("testbed.capture", *argv) as capture:
        assert capture.stderr
        assert "testbed capture: u1h1: to " in capture.stderr.readline()
        done = run(testbed, scripts / "sums.py")
        assert (done.returncode, "summed" in done.stdout) == (0, True), done.stderr
        said = capture.stderr.read()
        assert capture.wait(WAIT_S) == 1
    size = file.stat().st_size
    assert said == f"testbed capture: write {file}: {FULL}; it has the frames until then, {size} bytes\n"
    assert 500_000 < 16 * len(frames := rdpcap(str(file))) + 24 + sum(len(frame) for frame in frames) == size
    file.unlink()


def test_the_testbed_goes_on(testbed: Testbed, disk: Path, scripts: Path) -> None:
    assert command("testbed.status", "--name", testbed.name).returncode == 0
    done = run(testbed, "--json", disk / "result.json", scripts / "sums.py")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in disk.iterdir()) == ["result.json", "result.telemetry.npz"]
