"""The controller's second library: where its Python is, and what is said where it is not.
tests/privileged/test_controller.py runs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import install_ryu
from testbed import up
from testbed.client import environment
from testbed.errors import HostError
from testbed.host_checks import host
from testbed.host_checks.features import BY_NAME, ProbeFailure

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([\w.]+)$")


@pytest.fixture
def no_ryu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "RYU_VENV", tmp_path)


def test_each_library_has_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "RYU_VENV", tmp_path)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    assert environment.controller_interpreter("os-ken") == Path(sys.executable)
    assert environment.controller_interpreter("ryu") == python


@pytest.mark.usefixtures("no_ryu")
def test_a_testbed_on_ryu_does_not_come_up_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(up, "check_tools", lambda: None)
    monkeypatch.setattr(environment, "NEWEST_FOR_RYU", sys.version_info[:2])
    assert (
        environment.exit_code("testbed up", up.main, ["--name", "never-started", "--controller", "ryu"]) == 3
    )
    assert re.fullmatch(r"testbed up: ryu is not installed: run sudo make ryu .*\n", capsys.readouterr().err)


@pytest.mark.usefixtures("no_ryu")
def test_the_doctor_has_the_remedy_and_can_do_without() -> None:
    with pytest.raises(ProbeFailure, match="ryu"):
        host.ryu()
    assert (BY_NAME["ryu"].remedy, BY_NAME["ryu"].required) == ("sudo make ryu", False)


@pytest.mark.usefixtures("no_ryu")
def test_a_python_that_is_too_new_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "NEWEST_FOR_RYU", (3, 5))
    with pytest.raises(HostError, match=r"^ryu 4\.34 cannot be built for Python 3\.\d+: take os-ken"):
        environment.controller_interpreter("ryu")


def test_another_library_than_asked_for_is_an_error(tmp_path: Path) -> None:
    words = ["--topology", "t", "--socket", "s", "--history", "h", "--listen-port", "1", "--library", "ryu"]
    done = subprocess.run(
        [sys.executable, "-m", "controller", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3
    assert re.fullmatch(r"controller: --library ryu: \S+ has os-ken [\d.]+\n", done.stderr)


def test_both_environments_pin_everything_and_agree() -> None:
    pins = []
    for name in ("requirements-ryu.txt", "requirements.txt"):
        lines = [
            line for line in (ROOT / "scripts" / name).read_text().splitlines() if line and line[0] != "#"
        ]
        assert all(PIN.match(line) for line in lines), name
        pins.append(dict(line.split("==") for line in lines))
    ryu, own = pins
    assert ryu["ryu"] == "4.34"
    assert {name: version for name, version in ryu.items() if own.get(name, version) != version} == {}
    assert "os-ken" not in ryu
    assert all(PIN.match(tool) for tool in install_ryu.BUILD_TOOLS)
