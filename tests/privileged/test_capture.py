"""`testbed capture` on a running testbed: what is in the file, whose it is, when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from testbed.wire import pcap, spec
from testbed.wire.frame import Frame, is_gradient
from testbed.wire.scapy_layer import GradientPacket
from tests.privileged.commands import WAIT_S, Testbed, command, running, start

pytestmark = [pytest.mark.needs("xdp", "ovs", "torch")]

NOBODY = 65534
LENGTH = 36 * 1009 - 7
SCRIPT = f"""
import torch, torch.distributed as dist
dist.init_process_group("inc")
summed = torch.full(({LENGTH},), 2.0 ** dist.get_rank())
dist.all_reduce(summed)
print("sum", summed.unique().tolist())
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as made:
        yield made


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody's, in folders that every user may pass."""
    path = tmp_path_factory.mktemp("capture")
    for parent in (path, path.parent, path.parent.parent):
        parent.chmod(0o755)
    os.chown(path, NOBODY, NOBODY)
    return path


def begun(*argv: str) -> subprocess.Popen[str]:
    """A capture that has said that it is on."""
    process = start("testbed.capture", *argv)
    assert process.stderr
    first = process.stderr.readline()
    assert "testbed capture: u1h2: to " in first, first + process.stderr.read()
    return process


def test_a_capture_holds_every_packet_of_a_job(testbed: Testbed, folder: Path) -> None:
    script, file, report = folder / "sum.py", folder / "u1h2.pcap", folder / "report.json"
    script.write_text(SCRIPT)
    capture = begun(
        "u1h2", "--name", testbed.name, "--output", str(file), "--seconds", "1000", "--count", "100000"
    )
    job = command(
        "testbed.run",
        "--name",
        testbed.name,
        "--preload",
        "--place",
        "u1:2",
        "--json",
        str(report),
        str(script),
    )
    assert job.returncode == 0, job.stderr
    second = command("testbed.capture", "u1h1", "--name", testbed.name, "--output", str(file))
    assert "another capture is writing it" in second.stderr
    capture.send_signal(signal.SIGINT)
    assert capture.wait(WAIT_S) == 130
    stats = json.loads(report.read_text())["workers"][1]["stats"]

    frames = [bytes(captured) for captured in rdpcap(str(file))]
    for data in filter(is_gradient, frames):
        Frame.parse(data)  # raises where a length or the UDP checksum is wrong
    packets = [frame[GradientPacket] for frame in map(Ether, frames) if GradientPacket in frame]
    pushes = [packet for packet in packets if packet.op == spec.Op.PUSH]
    results = [packet for packet in packets if packet.op == spec.Op.RESULT]
    assert len(pushes) + len(results) == len(packets)
    assert len(pushes) == stats["pushed"] + stats["retransmits"]
    assert {packet.worker for packet in pushes} == {1}
    assert {packet.worker for packet in results} == {0xFFFF}
    fragments = {packet.fragment for packet in pushes}
    assert {packet.fragment for packet in results} == fragments
    assert len(fragments) >= -(-LENGTH // spec.LANES)
    assert {len(packet.gradients) for packet in packets} == {spec.LANES}


def test_it_ends_after_so_many_frames(testbed: Testbed, folder: Path) -> None:
    file = folder / "few.pcap"
    capture = begun("u1h2", "--name", testbed.name, "--output", str(file), "--count", "7", "--seconds", "600")
    script = folder / "sum.py"
    script.write_text(SCRIPT)
    job = command("testbed.run", "--name", testbed.name, "--preload", "--place", "u1:2", str(script))
    assert job.returncode == 0, job.stderr
    said = capture.communicate(timeout=WAIT_S)[0]
    assert capture.returncode == 0
    assert said.startswith("u1h2: 7 frames in ")
    assert len(rdpcap(str(file))) == 7


def test_it_ends_in_time_and_the_file_is_the_callers(testbed: Testbed, folder: Path) -> None:
    file = folder / "own.pcap"
    user = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    argv = ["testbed.capture", "u1o1", "--name", testbed.name, "--output", str(file), "--seconds", "0.2"]
    ended = command(*argv, env=user)
    assert ended.returncode == 0, ended.stderr
    said = re.search(r"u1o1: 0 frames in ([0-9.]+) s \(0 from the ToR, 0 to it\)", ended.stdout)
    assert said, ended.stdout
    assert float(said[1]) >= 0.2
    assert (file.stat().st_uid, file.stat().st_gid) == (NOBODY, NOBODY)
    assert file.read_bytes() == pcap.HEADER
    assert struct.unpack("<I", file.read_bytes()[20:24]) == (pcap.LINK_ETHERNET,)


def test_one_clear_line(testbed: Testbed, folder: Path) -> None:
    taken = folder / "roots.pcap"
    taken.touch(mode=0o600)
    user = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    for argv, says in (
        (["u1h5"], "link u1h5: there is none; links are u1h1, "),
        (["u1h1", "--output", str(taken)], "cannot write it: Permission denied"),
        (["u1h1", "--output", "/dev/null"], "it is no ordinary file"),
        (["u1h1", "--output", "/proc/none/x"], "cannot write it: No such file or directory"),
    ):
        ended = command("testbed.capture", *argv, "--name", testbed.name, env=user)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
        assert says in ended.stderr
