"""The installer of the P4 tools, without a network and without apt."""

from __future__ import annotations

import socket
import urllib.error
from pathlib import Path

import pytest

from scripts import install_p4
from scripts.installing import SetupError


@pytest.mark.parametrize(
    ("described", "release"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n', "Debian_12"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "xUbuntu_24.04"),
    ],
)
def test_the_release_is_named_as_the_repository_names_it(described: str, release: str) -> None:
    assert install_p4.release_of(described) == release


@pytest.mark.parametrize(
    ("described", "name"),
    [("ID=fedora\nVERSION_ID=40\n", "fedora 40"), ("ID=debian\n", "debian"), ("", "unknown")],
)
def test_another_system_is_named(described: str, name: str) -> None:
    with pytest.raises(SetupError, match=f"^this system is {name}; ") as raised:
        install_p4.release_of(described)
    assert raised.value.exit_code == 3


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            urllib.error.URLError(socket.gaierror(-2, "Name or service not known")),
            "Name or service not known",
        ),
        (urllib.error.URLError("unknown url type: x"), "unknown url type: x"),
        (TimeoutError("timed out"), "timed out"),
        (TimeoutError(), "TimeoutError"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
    ],
)
def test_an_error_in_one_line(error: Exception, said: str) -> None:
    assert install_p4.why(error) == said


def test_no_network_is_one_line_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setattr(install_p4, "REPOSITORY", f"127.0.0.1:{closed.getsockname()[1]}/p4lang")
        monkeypatch.setattr(install_p4, "APT", tmp_path)
        monkeypatch.setattr(install_p4, "PACKAGES", {"no-such-program": "p4lang-bmv2"})
        monkeypatch.setattr(install_p4, "give_to_owner", lambda: None)
        monkeypatch.setattr("os.geteuid", lambda: 0)
        monkeypatch.setattr(install_p4, "release_of", lambda _: "Debian_12")
        monkeypatch.setattr("shutil.which", lambda name: "/bin/true" if name == "apt-get" else None)
        monkeypatch.setenv("no_proxy", "*")
        assert install_p4.main() == 3
    said = capsys.readouterr().err
    assert said.startswith("setup: cannot reach the P4 project's packages, which need the network: https://")
    assert said.endswith("Connection refused\n")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_it_wrote_is_put_back_if_the_work_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    monkeypatch.setattr(install_p4, "LISTS", lists)
    new, old, other = tmp_path / "key", tmp_path / "source", lists / "debian_p4lang_old"
    old.write_bytes(b"before")
    other.write_text("kept")

    def fail() -> None:
        with install_p4.unless_done({new: b"key", old: b"after"}):
            assert (new.read_bytes(), old.read_bytes()) == (b"key", b"after")
            (lists / "home:_p4lang_Debian_Packages").write_text("came")
            (lists / "debian_Packages").write_text("another program's")
            raise SetupError("apt-get failed", 1)

    with pytest.raises(SetupError, match="apt-get failed"):
        fail()
    assert not new.exists()
    assert old.read_bytes() == b"before"
    assert sorted(path.name for path in lists.iterdir()) == ["debian_Packages", "debian_p4lang_old"]
    with install_p4.unless_done({new: b"key"}):
        pass
    assert new.read_bytes() == b"key"
