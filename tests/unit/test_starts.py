"""The files from which a repeated run begins: what changed is named, whatever the script did to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.api import starts
from testbed.api.starts import beginning, changes, in_a_line, unread_in_a_line, watched
from testbed.client.caller import Caller
from testbed.run import _Files


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def in_place(path: Path) -> None:
    with path.open("r+") as file:
        file.write("y")


def replaced(path: Path) -> None:
    stat = path.stat()
    write(path.with_name("draft"), "z")
    os.utime(path.with_name("draft"), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    path.with_name("draft").rename(path)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("train.py", "data/a.bin", "data/deep/b.bin", "out/last.pt"):
        write(tmp_path / "work" / name)
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("act", "name", "word"),
    [
        (write, "ckpt.pt", "new"),
        (write, "runs/1/ckpt.pt", "new"),
        (in_place, "out/last.pt", "changed"),
        (lambda path: write(path, "longer"), "data/deep/b.bin", "changed"),
        (replaced, "data/a.bin", "changed"),
        (Path.unlink, "data/deep/b.bin", "gone"),
    ],
)
def test_a_file_that_a_run_leaves_otherwise_is_named(
    work: Path, act: Callable[[Path], object], name: str, word: str
) -> None:
    tops = watched("train.py", ["--epochs", "3"], work)
    first = beginning(tops)
    assert changes(first, beginning(tops)) == {}
    act(work / name)
    assert changes(first, beginning(tops)) == {work / name: word}


def test_what_arguments_name_is_watched_also_where_it_is_not_yet(work: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    write(tmp_path / "code" / "train.py")
    arguments = [
        "5",
        "--lr=0.1",
        f"--save={tmp_path}/far/c.pt",
        "-v",
        str(tmp_path / "there"),
        "\0",
        "a" * 5000,
    ]
    tops = watched(str(tmp_path / "code" / "train.py"), arguments, work)
    first = beginning(tops)
    for name in ("far/c.pt", "far/other.pt", "there/d.pt", "code/e.pt", "elsewhere/f.pt"):
        write(tmp_path / name)
    assert sorted(changes(first, beginning(tops))) == [
        tmp_path / name for name in ("code/e.pt", "far/c.pt", "there/d.pt")
    ]


def test_logs_caches_hidden_files_and_environments_are_left_out(work: Path) -> None:
    write(work / "env" / "pyvenv.cfg")
    (work / "round").symlink_to(work)
    tops = watched(None, [], work)
    first = beginning(tops, [work / "logs"])
    for name in ("logs/1/worker.log", "__pycache__/train.pyc", ".cache/x", ".history", "env/lib/module.py"):
        write(work / name)
    (work / "dangling").symlink_to("nowhere")
    assert changes(first, beginning(tops, [work / "logs"])) == {}


def test_of_too_many_files_those_that_were_read_both_times_count(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write(work / "many" / str(number))
    for number in range(30):
        write(work / "zany" / str(number))
    monkeypatch.setattr(starts, "MOST_FILES", 25)
    first = beginning([work])
    write(work / "many" / "new")
    write(work / "zany" / "new")
    write(work / "ckpt.pt")
    now = beginning([work])
    assert changes(first, now) == {work / "ckpt.pt": "new", work / "many" / "new": "new"}
    assert (unread_in_a_line(first, now, work) or "").startswith(
        "whether it begins with the first run's files in data/deep, out, zany is not known: "
    )


def test_a_folder_that_takes_too_long_is_left_out(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = beginning([work])
    monkeypatch.setattr(starts, "WITHIN_S", -1.0)
    assert changes(first, beginning([work])) == {}
    line = unread_in_a_line(first, beginning([work]), work.parent) or ""
    assert line.startswith("whether it begins with the first run's files in work is not known: ")
    assert unread_in_a_line(first, first, work) is None


def test_a_repeated_run_says_once_what_was_not_compared(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(starts, "WITHIN_S", -1.0)
    monkeypatch.chdir(work)
    files = _Files([work / "data", work / "out"], [], Caller.of_this_process())
    assert files.note(1) is None, "it is the first"
    for number in (2, 3):
        assert "files in data, out is not known: " in (files.note(number) or "")
    assert capsys.readouterr().err.count("note: run 2: whether it begins with") == 1


def test_the_line_names_some_and_counts_the_rest(work: Path) -> None:
    first = beginning([work])
    for number in range(7):
        write(work / "w" / f"{number}.pt")
    line = in_a_line(changes(first, beginning([work])), work)
    assert "other files than the first run: w/0.pt (new), w/1.pt (new)," in line
    assert "w/4.pt (new) and 2 more; a script that reads them does other work" in line
