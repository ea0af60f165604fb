"""The installers of scripts/: the parts that they share, and that they start where nothing but the system's
Python is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import install_p4, install_ryu, installing, setup
from scripts.installing import Environment, SetupError, ended, output_of
from tests.limits import CALL_S

ROOT = Path(__file__).resolve().parents[2]
BARE = ["/usr/bin/python3", "-S", "-E"]  # without any site-packages, Debian's included


def fail(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), ".cache/setup-pip.log")
ENDS = [
    (SetupError("this system has no dpkg", 3), 3, "setup: this system has no dpkg\n"),
    (FULL, 1, "setup: .cache/setup-pip.log: No space left on device\n"),
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "setup: write: No space left on device\n"),
    (KeyboardInterrupt(), 130, "setup: interrupted; run it again to go on\n"),
]


@pytest.mark.parametrize(("error", "code", "said"), ENDS)
def test_an_installer_ends_with_one_line_and_a_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(fail(error)) == code
    assert capsys.readouterr() == ("", said)


def test_one_that_did_its_work_says_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(lambda: None) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("module", "work"), [(setup, "set_up"), (install_p4, "install_tools"), (install_ryu, "install_ryu")]
)
def test_every_installer_ends_so(
    module: object, work: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, work, lambda **_: fail(FULL)())
    monkeypatch.setattr("sys.argv", ["installer"])
    assert module.main() == 1  # type: ignore[attr-defined]
    assert capsys.readouterr() == ("", "setup: .cache/setup-pip.log: No space left on device\n")


@pytest.mark.parametrize("script", ["setup", "install_p4", "install_ryu"])
def test_it_starts_as_a_file_with_nothing_but_the_systems_python(script: str, tmp_path: Path) -> None:
    path = ROOT / "scripts" / f"{script}.py"
    code = f"import runpy; print(callable(runpy.run_path({str(path)!r})['main']))"
    done = subprocess.run(
        [*BARE, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert callable(runpy.run_path(str(path))["main"])  # in the project's environment, too


def first_layer(folder: Path) -> Path:
    """A checkout as far as the image has one when it installs dependencies."""
    before, _, _ = (ROOT / "Containerfile").read_text().partition("RUN python3 scripts/setup.py")
    (folder / "scripts").mkdir()
    for line in re.findall(r"^COPY (.*) scripts/$", before, re.MULTILINE):
        for name in line.split():
            shutil.copy(ROOT / name, folder / "scripts")
    return folder


def test_the_images_first_layer_has_all_that_set_up_imports(tmp_path: Path) -> None:
    argv = [*BARE, "scripts/setup.py", "--help"]
    layer = first_layer(tmp_path)
    done = subprocess.run(argv, cwd=layer, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Set-up itself, but for what would reach for the network.
DEPENDENCIES = """
import sys
sys.path.insert(0, ".")
from scripts import installing, setup
setup.missing_packages = lambda names: []
installing.Environment.make = lambda self, log, *options: print("an environment")
installing.Environment.pip_install = lambda self, what, log, *arguments: print(what, *arguments)
sys.argv = ["setup.py", "--dependencies", "--tests"]
sys.exit(setup.main())
"""


def test_the_images_first_layer_has_all_that_set_up_reads(tmp_path: Path) -> None:
    layer = first_layer(tmp_path)
    argv = [*BARE, "-c", DEPENDENCIES]
    done = subprocess.run(argv, cwd=layer, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    environment, packages, *_ = done.stdout.splitlines()
    assert environment == "an environment"
    assert packages.endswith(f"-r {layer}/scripts/requirements.txt")
    assert "this checkout" not in done.stdout


def test_an_environment_is_whole_only_with_the_mark_of_what_it_is_made_of(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.python.parent.mkdir()
    environment.python.touch()
    assert not environment.is_made_of("this")
    environment.complete("this")
    assert environment.is_made_of("this")
    assert not environment.is_made_of("that")
    environment.begin()
    assert not environment.is_made_of("this")


def test_a_program_that_fails_is_one_line() -> None:
    with pytest.raises(SetupError, match=r"^sh exited with 7 and said: no such thing$") as raised:
        output_of("sh", "-c", "echo first >&2; echo no such thing >&2; exit 7")
    assert raised.value.exit_code == 1


def test_packages_are_installed_in_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(installing, "apt_get", lambda names: "/usr/bin/apt-get")
    monkeypatch.setattr(
        installing, "run_logged", lambda what, argv, log, env: ran.append([what, *argv, log.name])
    )
    monkeypatch.setattr(installing, "POLICY", Path("/dev/null"))  # somebody's own: left as it is
    monkeypatch.setattr(installing, "missing_packages", lambda names: [])
    installing.install_by_apt(["a", "b"], "p4", ", the list", ["-o", "X=1"])
    update, install = ran
    assert (update[0], update[-4:]) == (
        "apt-get update, the list",
        ["-o", "X=1", "update", "p4-apt-update.log"],
    )
    assert install[0] == "apt-get install a b"
    assert install[-5:] == ["install", "--no-install-recommends", "a", "b", "p4-apt-install.log"]
    assert "X=1" not in install
    monkeypatch.setattr(installing, "missing_packages", lambda names: ["b"])
    with pytest.raises(SetupError, match=r"reported success, yet these are missing: b$"):
        installing.install_by_apt(["a", "b"], "setup")


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A checkout that was set up, with ryu, and a copy of it, which set-up now runs in."""
    first, copy = tmp_path / "first", tmp_path / "copy"
    for environment in (first / ".venv", first / ".venv-ryu"):
        packages = Environment(environment).packages
        packages.mkdir(parents=True)
        (environment / "bin").mkdir()
        (environment / "bin" / "python").symlink_to("/usr/bin/python3")
        for name in ("pip", "testbed"):
            (environment / "bin" / name).write_text(f"#!{environment}/bin/python3\n")
            (environment / "bin" / name).chmod(0o755)
        (environment / "pyvenv.cfg").write_text(f"command = python3 -m venv {environment}\n# {first}er\n")
    packages = Environment(first / ".venv").packages
    (packages / "__editable___optinc_finder.py").write_text(f"MAPPING = {{'testbed': '{first}/testbed'}}\n")
    (packages / "other.py").write_text(f"# {first}/.venv\n")
    Environment(first / ".venv").complete(f"made in {first}")
    Environment(first / ".venv-ryu").complete(install_ryu.fingerprint(first))
    subprocess.run(["cp", "-al", first, copy], check=True, timeout=CALL_S)  # its files by hard links
    monkeypatch.setattr(setup, "CHECKOUT", copy)
    monkeypatch.setattr(setup, "ENVIRONMENT", Environment(copy / ".venv"))
    monkeypatch.setattr(setup, "RYU_ENVIRONMENT", Environment(copy / ".venv-ryu"))
    monkeypatch.setattr(setup, "missing_packages", lambda needed: [])
    monkeypatch.setattr(setup, "one_at_a_time", contextlib.nullcontext)
    monkeypatch.setattr(setup, "fingerprint", lambda checkout=copy: f"made in {checkout}")
    return first, copy


def test_the_fingerprint_has_the_checkout_s_path(tmp_path: Path) -> None:
    assert setup.fingerprint(tmp_path) != setup.fingerprint() == setup.fingerprint(setup.CHECKOUT)


def test_a_copy_s_environment_names_the_copy_and_not_the_original(copied: tuple[Path, Path]) -> None:
    first, copy = copied
    assert not setup.environment_is_current()
    assert setup.original(setup.ENVIRONMENT) == first
    setup.set_up()
    assert setup.environment_is_current(), "nothing else has changed"
    assert setup.original(setup.ENVIRONMENT) is None
    for name in ("pip", "testbed"):
        assert (copy / ".venv" / "bin" / name).read_text() == f"#!{copy}/.venv/bin/python3\n"
        assert os.access(copy / ".venv" / "bin" / name, os.X_OK)
        assert (first / ".venv" / "bin" / name).read_text() == f"#!{first}/.venv/bin/python3\n"
    finder = Environment(copy / ".venv").packages / "__editable___optinc_finder.py"
    assert finder.read_text() == f"MAPPING = {{'testbed': '{copy}/testbed'}}\n"
    assert (copy / ".venv" / "pyvenv.cfg").read_text().splitlines()[1] == f"# {first}er"


def test_a_copy_s_environment_of_ryu_names_the_copy_too(
    copied: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first, copy = copied
    setup.set_up()
    assert f"environment .venv-ryu, copied from {first}: it names this folder now" in capsys.readouterr().out
    pip = Path(".venv-ryu") / "bin" / "pip"
    assert (copy / pip).read_text() == f"#!{copy}/.venv-ryu/bin/python3\n"
    assert (first / pip).read_text() == f"#!{first}/.venv-ryu/bin/python3\n"
    assert Environment(copy / ".venv-ryu").is_made_of(install_ryu.fingerprint(copy)), "nothing is made anew"
    setup.set_up()
    assert capsys.readouterr().out == "setup: nothing is missing\n"


def test_a_copy_that_was_changed_is_moved_and_then_installed(copied: tuple[Path, Path]) -> None:
    _, copy = copied
    Environment(copy / ".venv").begin()
    Environment(copy / ".venv").complete("another")
    setup.move_environment(setup.ENVIRONMENT, setup.original(setup.ENVIRONMENT) or copy, setup.fingerprint)
    assert not setup.environment_is_current()
    assert (copy / ".venv" / "bin" / "pip").read_text().startswith(f"#!{copy}/")


def test_what_is_no_whole_copy_is_not_moved(copied: tuple[Path, Path]) -> None:
    _, copy = copied
    Environment(copy / ".venv").begin()
    assert setup.original(setup.ENVIRONMENT) is None
    (copy / ".venv" / "bin" / "pip").unlink()
    assert setup.original(setup.ENVIRONMENT) is None
