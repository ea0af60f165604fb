"""Each page of docs/how-to, done as its reader does it: every command ends well, prints what the page shows,
and nothing is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testbed.client.runtime import DEFAULT_NAME, Runtime
from tests.how_to import PAGES, Command, Written, is_printed, steps
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, command, environment, forget, wait_for

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs")
BEGUN_S = CALL_S  # until a command in the background prints its first lines
READ = ("docs", "examples", "wireshark", "workloads")


def checkout(folder: Path) -> Path:
    """Make a folder that has what readers use of the checkout, and in which a page's files can be written."""
    made = folder / "optinc"
    made.mkdir()
    for name in READ:
        (made / name).symlink_to(ROOT / name)
    (made / ".venv").symlink_to(sys.prefix)
    return made


class Reader:
    """Types commands in a folder. A testbed that it left up ends with `page`."""

    def __init__(self, folder: Path) -> None:
        self._folder = checkout(folder)
        self._environment = environment(
            {
                "OPTINC_RUNS": str(folder / "runs"),
                "TMPDIR": str(folder),
                "COLUMNS": "120",
                "PYTHONUNBUFFERED": "1",  # as on a terminal
            }
        )
        self._open = ExitStack()

    @contextmanager
    def page(self) -> Iterator[None]:
        """Run the body, and end what it started."""
        runtime = Runtime.of(DEFAULT_NAME)
        assert not runtime.alive(), "a testbed called default runs, and is not this page's"
        try:
            with self._open:
                yield
        finally:
            if runtime.alive():
                command("testbed.down", "--name", DEFAULT_NAME)
            forget(DEFAULT_NAME)

    def write(self, file: Written) -> None:
        """Write a file of the page."""
        (self._folder / file.name).write_text(file.text)

    def type(self, typed: Command) -> None:
        """Run a command, and hold what it prints against the page."""
        if typed.is_background:
            self._begin(typed)
            return
        ended = subprocess.run(
            self._words(typed.words),
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=CALL_S,
            check=False,
        )
        assert ended.returncode == 0, f"$ {typed.words}: {ended.returncode}\n{ended.stdout}"
        shown = "\n".join(typed.lines)
        assert is_printed(typed, ended.stdout), f"$ {typed.words}\n{ended.stdout}\nis not\n{shown}"

    def _begin(self, typed: Command) -> None:
        file, name = tempfile.mkstemp(dir=self._folder.parent)
        output = Path(name)
        with open(file, "w") as written:
            process = subprocess.Popen(
                self._words(typed.words.removesuffix(" &")),
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._open.callback(self._end, process, output)
        wait_for(lambda: is_printed(typed, output.read_text()), f"$ {typed.words}: {typed.lines}", BEGUN_S)

    @staticmethod
    def _words(words: str) -> list[str]:
        return ["bash", "-c", words.replace("sudo ", "")]

    @staticmethod
    def _end(process: subprocess.Popen[bytes], output: Path) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(CALL_S)
        assert "Traceback" not in output.read_text(), output.read_text()  # `down` may end it by any exit code


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page(path: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with reader.page():
        for step in steps(path.read_text()):
            if isinstance(step, Written):
                reader.write(step)
            else:
                reader.type(step)
        assert not Runtime.of(DEFAULT_NAME).alive(), "the page leaves a testbed up"


@pytest.mark.parametrize("words", ["echo b", "echo b &", "echo a; false"])
def test_a_command_that_does_not_do_what_its_page_shows_fails(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.privileged.test_how_to.BEGUN_S", 0.1)
    reader = Reader(tmp_path)
    with pytest.raises(AssertionError), reader.page():
        reader.type(Command(words, ("a",)))
