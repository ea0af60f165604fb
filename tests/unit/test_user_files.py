"""Files of users: what lies at a path is met at once, whatever it is."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from testbed.client.caller import Caller
from testbed.client.runtime import remove_tree
from testbed.errors import RequestError
from testbed.jobs import user_files
from testbed.jobs.logs import own_log
from testbed.jobs.user_files import UserFiles
from tests.processes import spawn

ME = Caller.of(os.geteuid())
FILES = UserFiles(spawn)


@pytest.fixture
def odd(tmp_path: Path) -> dict[str, Path]:
    """The paths that are no ordinary files, by name."""
    made = {name: tmp_path / name for name in ("pipe", "socket", "folder", "gone/x")}
    os.mkfifo(made["pipe"])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(made["socket"]))
    made["folder"].mkdir()
    return {**made, "device": Path("/dev/zero"), "null": Path("/dev/null")}


REASONS = {
    "pipe": "it is no ordinary file",
    "socket": "it is no ordinary file",
    "folder": "Is a directory",
    "gone/x": "No such file or directory",
    "device": "it is no ordinary file",
    "null": "it is no ordinary file",
}


@pytest.mark.parametrize("kind", REASONS)
def test_nothing_but_ordinary_files_and_nobody_waits(odd: dict[str, Path], kind: str) -> None:
    path = odd[kind]
    (read,) = FILES.read([path], ME, 100)
    assert (read is None) == (kind == "gone/x")
    if read is not None:
        assert str(read) == "[Errno 0] it is no ordinary file"
    says = f"{path}: user {ME.user} cannot write it: {REASONS[kind]}"
    with pytest.raises(RequestError, match=f"log {says}"):
        FILES.open_logs([path], ME)
    with pytest.raises(RequestError, match=f"--output {says}"):
        FILES.open_output(path, ME)
    with pytest.raises(OSError, match=REASONS[kind]):
        FILES.write(path, b"x" * 1_000_000, ME)


def test_a_pipe_that_somebody_reads_is_none_either(odd: dict[str, Path]) -> None:
    reader = os.open(odd["pipe"], os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(RequestError, match="it is no ordinary file"):
        FILES.open_logs([odd["pipe"]], ME)
    os.close(reader)


def test_written_and_read(tmp_path: Path) -> None:
    content = os.urandom(3_000_001)
    (tmp_path / "a").write_bytes(b"longer" * 1_000_000)
    FILES.write(tmp_path / "a", content, ME)
    paths = [tmp_path / "gone", tmp_path / "a", tmp_path / "a"]
    assert FILES.read(paths, ME, 3_000_001) == [None, content, content]
    (tmp_path / "b").write_bytes(b"short")
    long, short = FILES.read([tmp_path / "a", tmp_path / "b"], ME, 3_000_000)
    assert str(long) == "[Errno 0] it has 3000001 bytes, more than the 3000000 that are read"
    assert short == b"short"


def test_what_is_read_together_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_files, "TOGETHER_BYTES", 3 << 20)
    paths = [tmp_path / name for name in ("a", "b", "c", "d")]
    for path in paths:
        path.write_bytes(b"x" * (1 << 20))
    *first, last = FILES.read(paths, ME, 2 << 20)
    assert first == [b"x" * (1 << 20)] * 3
    assert str(last) == "[Errno 0] there are more than 3 MiB to read together"


def test_logs_are_emptied_and_appended_to_and_an_output_is_not_emptied(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(300)]
    paths[7].write_text("before")
    logs = FILES.open_logs(paths, ME)
    assert len(logs) == 300
    for number, log in enumerate(logs):
        assert not os.get_inheritable(log)
        os.write(log, f"{number}".encode())
        os.close(log)
    assert [path.read_text() for path in paths] == [str(number) for number in range(300)]
    output = FILES.open_output(paths[42], ME)
    assert paths[42].read_text() == "42"
    os.close(output)


def test_of_several_logs_the_one_that_cannot_be_is_named_and_none_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    (tmp_path / "b").mkdir()
    with pytest.raises(RequestError, match=f"log {tmp_path / 'b'}: .* Is a directory"):
        FILES.open_logs([tmp_path / "a", tmp_path / "b", tmp_path / "c"], ME)
    assert os.listdir("/proc/self/fd") == before


def test_what_does_not_answer_is_given_up(tmp_path: Path) -> None:
    files = UserFiles(lambda argv, **options: spawn(["sleep", "600"], **options), within_s=0.2)
    for read in files.read([tmp_path / "a", tmp_path / "b"], ME, 100):
        assert "it takes longer than 0.2 s" in str(read)
    with pytest.raises(RequestError, match=r"cannot write it: it takes longer than 0.2 s"):
        files.open_logs([tmp_path / "a"], ME)
    with pytest.raises(OSError, match=r"it takes longer than 0.2 s"):
        files.write(tmp_path / "a", b"x" * 10_000_000, ME)


def test_a_process_that_says_done_and_passes_nothing_is_no_descriptor(tmp_path: Path) -> None:
    program = "import socket; socket.socket(fileno=0).send(b'+')"
    files = UserFiles(lambda argv, **options: spawn([sys.executable, "-c", program], **options))
    with pytest.raises(
        RequestError, match=r"cannot write it: the process that opens it passed no descriptor"
    ):
        files.open_output(tmp_path / "a", ME)


def test_a_policys_log_is_a_new_file_whatever_was_there(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    for make in (lambda log: log.symlink_to(tmp_path / "kept"), os.mkfifo, Path.touch):
        log = tmp_path / "policy.log"
        log.unlink(missing_ok=True)
        make(log)
        os.close(own_log(log, ME))
        assert log.is_file()
        assert not log.is_symlink()
        assert log.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_folder_of_any_depth_goes_and_what_it_links_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(kept)
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(3000):  # deeper than Python recurses, and than a path is long
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(top)
    assert not top.exists()
    assert (kept / "file").exists()
    remove_tree(top)
