"""The Wireshark dissector, run by the real tshark over a capture; and the captures' format."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
from scapy.utils import rdpcap

from testbed.wire import pcap, render_lua, spec
from testbed.wire.codec import Header
from testbed.wire.frame import NO_LANES, Frame
from testbed.wire.scapy_layer import GradientPacket
from tests.conftest import lacking

FLAGS = [f"flags.{(flag.name or '').lower()}" for flag in spec.Flag]
COLUMNS = [*(field.name for field in spec.HEADER), *FLAGS, "gradient"]
NOBODY = 65534


def frames() -> list[Frame]:
    """One of each op, every header field with a value of its own."""
    made = []
    for number, op in enumerate(spec.Op):
        values = {
            field.name: (0x01020304 * (at + number + 1)) % 2**field.bits
            for at, field in enumerate(spec.HEADER)
        }
        fixed = {
            "magic": spec.MAGIC,
            "version": spec.VERSION,
            "op": int(op),
            "flags": 1 << number % 8,
            "count": number,
        }
        lanes = (
            NO_LANES if op == spec.Op.NOTICE else np.arange(spec.LANES, dtype=np.uint32) * 0x01010101 + number
        )
        made.append(Frame(Header(**{**values, **fixed}), lanes, "10.0.1.1", "10.0.1.254"))
    return made


def written(folder: Path) -> Path:
    path = folder / "frames.pcap"
    records = [
        pcap.record(1_700_000_000_123_456_789 + number, made.pack()) for number, made in enumerate(frames())
    ]
    path.write_bytes(pcap.HEADER + b"".join(records))
    return path


def test_scapy_reads_a_capture(tmp_path: Path) -> None:
    read = rdpcap(str(written(tmp_path)))
    assert [packet[GradientPacket].op for packet in read] == [made.header.op for made in frames()]
    assert [bytes(packet) for packet in read] == [made.pack() for made in frames()]
    assert str(read[1].time) == "1700000000.123456790"


def tshark(path: Path, *arguments: str) -> list[str]:
    """Return the lines that tshark prints, one a packet. Not as root, which its Lua refuses."""
    if shutil.which("tshark") is None:
        lacking("tshark", "tshark is not installed; remedy: apt-get install tshark")
    user = NOBODY if os.geteuid() == 0 else None
    script = path.with_suffix(".lua")
    script.write_text(render_lua.lua_dissector())
    for made in (path, script, *path.parents):
        mode = made.stat().st_mode
        if made.stat().st_uid == os.geteuid() and mode & 0o055 != 0o055:
            made.chmod(mode | 0o055)
    argv = [
        "tshark",
        "-X",
        f"lua_script:{script}",
        "-o",
        "udp.check_checksum:TRUE",
        "-r",
        str(path),
        *arguments,
    ]
    ended = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        user=user,
        cwd="/",
        env={"PATH": os.environ["PATH"]},
    )
    assert ended.returncode == 0, ended.stderr
    assert "Lua" not in ended.stderr, ended.stderr
    return ended.stdout.splitlines()


def test_the_dissector_shows_every_field(tmp_path: Path) -> None:
    columns = [part for name in COLUMNS for part in ("-e", f"optinc.{name}")]
    lines = tshark(written(tmp_path), "-T", "fields", *columns, "-e", "udp.checksum.status")
    assert len(lines) == len(frames())
    for line, made in zip(lines, frames(), strict=True):
        cells = line.split("\t")
        shown = dict(zip(COLUMNS, cells, strict=False))
        for field in spec.HEADER:
            assert int(shown[field.name], 0) == getattr(made.header, field.name), field.name
        flags = {name: shown[name] in ("1", "True") for name in FLAGS}
        assert flags == {
            name: bool(made.header.flags & flag) for name, flag in zip(FLAGS, spec.Flag, strict=True)
        }
        assert [int(lane) for lane in shown["gradient"].split(",") if lane] == made.lanes.tolist()
        assert cells[-1] == "1", "tshark finds the UDP checksum good"


def test_the_dissector_says_what_a_packet_is(tmp_path: Path) -> None:
    lines = tshark(written(tmp_path), "-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info")
    header = frames()[0].header
    assert lines[0] == (
        f"OPTINC\tPUSH job {header.job} worker {header.worker} fragment {header.fragment} slot {header.slot}"
    )
    assert len({line.split()[1] for line in lines}) == len(lines), "each op has a name"
