"""Files, and their writers, where a disk has no room: the kernel's refusals, without a disk."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from controller.history import History
from controller.records import ChangeRecord
from testbed.api.files import write_result
from testbed.client import environment
from testbed.client.up_messages import UpNote
from testbed.daemon import capture
from testbed.daemon.supervisor import Relay
from testbed.errors import HostError, TestbedError, disk_is_full
from testbed.jobs import file_host
from tests.unit import results
from workloads.job_env import JobEnv

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file gets longer."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)


def replaced(path: Path, content: bytes) -> None:
    path.touch()
    fd = os.open(path, os.O_WRONLY)
    try:
        file_host.replace(fd, content)
    finally:
        os.close(fd)


def test_content_is_replaced_whole_by_longer_and_by_shorter(tmp_path: Path) -> None:
    for content in (b"first", b"x" * 300_000, b"last", b""):
        replaced(tmp_path / "a", content)
        assert (tmp_path / "a").read_bytes() == content


@pytest.mark.usefixtures("no_room")
def test_content_that_finds_no_room_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(OSError, match="No space left"):
        replaced(tmp_path / "a", b"longer than before")
    assert (tmp_path / "a").read_bytes() == b"before"
    replaced(tmp_path / "a", b"short")  # there is room for that
    assert (tmp_path / "a").read_bytes() == b"short"


@pytest.mark.usefixtures("no_room")
def test_a_result_that_finds_no_room_is_not_there(tmp_path: Path) -> None:
    result = results.read(id=7, series="AAAA")
    with pytest.raises(HostError, match=r"^--json \S+: No space left on device; job 7 ended$"):
        write_result(tmp_path / "r.json", result)
    assert list(tmp_path.iterdir()) == []


class FullAfter(io.FileIO):
    """A file that grows to so many bytes."""

    room = 100

    def write(self, data: bytes) -> int:  # type: ignore[override]
        left = self.room - self.tell()
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data[:left])


def test_a_capture_file_ends_with_what_was_written_whole(tmp_path: Path) -> None:
    with FullAfter(tmp_path / "x.pcap", "wb") as file:
        capture._write_whole(file, b"a" * 60)
        with pytest.raises(OSError, match="No space left"):
            capture._write_whole(file, b"b" * 60)
        assert file.tell() == 60
    assert (tmp_path / "x.pcap").read_bytes() == b"a" * 60


def test_events_that_find_no_room_are_written_with_the_next(tmp_path: Path) -> None:
    history = History(Path("/dev/full"))
    history.append(ChangeRecord(id=1))
    history._path = tmp_path / "history"
    history.append(ChangeRecord(id=2))
    history.append(ChangeRecord(id=3))
    lines = (tmp_path / "history").read_text().splitlines(keepends=True)
    assert [(json.loads(line)["id"], line[-1]) for line in lines] == [(1, "\n"), (2, "\n"), (3, "\n")]


def test_a_log_without_room_does_not_end_a_testbed() -> None:
    relay = Relay(-1, SimpleNamespace())  # type: ignore[arg-type]
    shown = []

    def show(message: UpNote) -> None:
        shown.append(message)
        raise FULL

    relay._screen = SimpleNamespace(show=show)  # type: ignore[assignment]
    relay.show(UpNote("the controller was started again"))
    assert shown == [UpNote("the controller was started again")]


def test_a_command_that_finds_no_room_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: list[str]) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/run/optinc/x/topology.json")

    assert environment.exit_code("testbed up", work, []) == 1
    assert capsys.readouterr().err == (
        "testbed up: write /run/optinc/x/topology.json: No space left on device\n"
    )


def test_only_a_full_disk_is_one() -> None:
    assert isinstance(disk_is_full(FULL), TestbedError)
    assert disk_is_full(OSError(errno.EACCES, "Permission denied", "/x")) is None


def test_statistics_that_find_no_room_leave_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, text: str) -> None:
        path.write_bytes(text.encode()[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write)
    said: list[int] = []
    job = SimpleNamespace(
        stats=tmp_path / "stats-0.json", board=SimpleNamespace(lacks_statistics=said.append)
    )
    with pytest.raises(OSError, match="No space left"):
        JobEnv.write_stats(job, {"rank": 0})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    assert said == [errno.ENOSPC], "the board has the reason, on which the verdict goes"
