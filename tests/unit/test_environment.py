"""The environment's door and the top of every command, from processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import __main__ as dispatch
from testbed.client import environment, output
from testbed.client.screen import summary
from testbed.client.up_messages import NetworkSummary, UpReady
from testbed.errors import HostError, RequestError, TestbedError
from tests.limits import CALL_S

CHECKOUT = environment.CHECKOUT
COMMAND = """
from __future__ import annotations

import sys

from testbed.client import environment
from testbed.errors import RequestError


def main(argv: list[str]) -> int:
    if argv == ["wrong"]:
        raise RequestError("unit u9: no such unit; accepted: u1, u2")
    print(sys.prefix, *argv)
    return 0


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one command, `probe`, that was not set up."""
    client = ("__init__.py", "arguments.py", "environment.py", "output.py", "terminal_text.py")
    names = ("__init__.py", *(f"client/{name}" for name in client), "errors.py", "interpreters.py")
    for name in names:
        target = tmp_path / "testbed" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / "testbed" / name, target)
    (tmp_path / "testbed" / "probe.py").write_text(COMMAND)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "setup.py").touch()
    return tmp_path


def python(checkout: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, *argv],
        cwd=checkout,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=CALL_S,
    )


def make_environment(checkout: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(checkout / ".venv")], check=True, timeout=CALL_S
    )


def test_a_checkout_that_was_not_set_up_says_so(checkout: Path) -> None:
    ended = python(checkout, "-m", "testbed.probe")
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        3,
        "",
        "testbed probe: not set up: run sudo make setup\n",
    )


@pytest.mark.parametrize("how", [["-m", "testbed.probe"], ["testbed/probe.py"]], ids=["module", "file"])
def test_goes_on_inside_the_environment_with_the_same_arguments(checkout: Path, how: list[str]) -> None:
    make_environment(checkout)
    if how[0] != "-m":
        how = [
            "-c",
            f"import runpy, sys; sys.path.insert(0, ''); sys.argv = {how!r} + sys.argv[1:]; "
            f"runpy.run_path({how[0]!r}, run_name='__main__')",
        ]
    ended = python(checkout, *how, "--a", "b c")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{checkout / '.venv'} --a b c\n", "")


def test_a_command_of_an_environment_with_another_torch_stays_there(checkout: Path) -> None:
    make_environment(checkout)
    folder = checkout / f"{environment.TORCH_VENV}2.12.1"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=CALL_S)
    argv = [str(folder / "bin" / "python"), "-m", "testbed.probe"]
    ended = subprocess.run(argv, cwd=checkout, capture_output=True, text=True, check=False, timeout=CALL_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{folder}\n", "")


def test_an_environment_that_is_none_is_an_error_and_no_loop(checkout: Path) -> None:
    link = checkout / ".venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    ended = python(checkout, "-m", "testbed.probe")
    assert ended.returncode == 3
    assert "is no environment of its own" in ended.stderr


def test_a_typed_error_is_one_line_and_its_exit_code(checkout: Path) -> None:
    make_environment(checkout)
    ended = python(checkout, "-m", "testbed.probe", "wrong")
    assert (ended.returncode, ended.stderr) == (2, "testbed probe: unit u9: no such unit; accepted: u1, u2\n")


@pytest.mark.parametrize(
    ("raised", "code"),
    [(TestbedError("x"), 1), (RequestError("x"), 2), (HostError("x"), 3), (KeyboardInterrupt(), 130)],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_outcome(raised: BaseException, code: int) -> None:
    def run(argv: list[str]) -> int:
        raise raised

    assert environment.exit_code("testbed probe", run, []) == code


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        environment.exit_code("testbed probe", lambda argv: 1 // len(argv), [])


def test_a_reader_that_left_is_no_error_to_speak_of() -> None:
    code = (
        "from testbed.client import environment as e; e.command_main(lambda argv: print('x' * 200000) or 0)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == output.UNREAD == 141


def test_a_socket_of_ours_that_breaks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def run(argv: list[str]) -> int:
        raise BrokenPipeError("the daemon went away")

    assert environment.exit_code("testbed probe", run, []) == 1
    assert "the daemon went away" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["fly"]])
def test_no_or_an_unknown_command_lists_the_commands(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch.main(argv) == 2
    said = capsys.readouterr().err
    assert all(command in said for command in dispatch.COMMANDS)


def test_what_a_detached_process_says_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is the root, and nobody reads its words there."""
    monkeypatch.chdir("/")
    assert Path(environment.typed("down").split()[0]).is_absolute()


def test_what_a_command_says_to_type_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path has no `testbed`, as sudo's has not, and the folder is any."""
    ready = NetworkSummary(1, 2, (), "netdev")
    message = UpReady(ready, "default", 1, "alice", "rack", True)
    for folder in (CHECKOUT, tmp_path):
        monkeypatch.chdir(folder)
        hints = dict(re.findall(r"^  ([a-z ]+?)   +(\S+ \w+)", summary(message, 1.0), re.MULTILINE))
        for hint, command in (("run a job", "run"), ("look at it", "status"), ("end it", "down")):
            program, asked = hints[hint].split()
            assert asked == command
            help_ = subprocess.run(
                [program, command, "--help"],
                env={"PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
                timeout=CALL_S,
            )
            assert help_.stdout.startswith(f"usage: testbed {command}"), help_.stderr


def test_whose_code_runs_is_said_in_another_checkout_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a copy, whose environment names the original still."""
    copy = tmp_path / "copy"
    for name in ("scripts/setup.py", "testbed/__main__.py", "docs/tour.md"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    for here in (CHECKOUT, CHECKOUT / "docs", tmp_path):
        monkeypatch.chdir(here)
        assert dispatch.main(["--version"]) == 0
        assert capsys.readouterr().err == ""
    for words in (["--version"], ["systems"]):
        for here in (copy, copy / "docs"):
            monkeypatch.chdir(here)
            assert dispatch.main(words) == 0
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"testbed: the code is {CHECKOUT}'s, and not {copy}'s; ")
            assert "make setup" in line
