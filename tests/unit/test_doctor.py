"""The list of features, the order in which they are tried, and what the doctor says of the outcome."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.setup import needed_packages
from testbed import doctor
from testbed.errors import HostError
from testbed.host_checks import container, features, host, kernel, trials
from testbed.host_checks.features import BY_NAME, FEATURES, ProbeFailure, ProbeResult, with_needs


def test_each_feature_has_one_probe() -> None:
    assert sorted([*host.PROBES, *kernel.PROBES]) == sorted(BY_NAME)


def test_needs_come_first_and_exist() -> None:
    order = [feature.name for feature in FEATURES]
    for feature in FEATURES:
        assert all(order.index(need) < order.index(feature.name) for need in feature.needs)


def test_needs_of_needs_are_tried() -> None:
    assert with_needs(["mmap"]) == [
        "root",
        "capabilities",
        "environment",
        "bcc",
        "headers",
        "namespaces",
        "veth",
        "xdp",
        "mmap",
    ]


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on which everything would work, had one only root."""

    def refuse() -> str:
        raise ProbeFailure("user id 1000")

    def tried_in_kernel(names: Sequence[str]) -> list[ProbeResult]:
        return [ProbeResult(name, True, "fine") for name in names]

    for name in host.PROBES:
        monkeypatch.setitem(host.PROBES, name, lambda: "fine")
    monkeypatch.setitem(host.PROBES, "root", refuse)
    monkeypatch.setattr(kernel, "findings", tried_in_kernel)


@pytest.mark.usefixtures("no_root")
def test_what_needs_a_lacking_feature_is_not_tried() -> None:
    by_name = {finding.name: finding for finding in trials.findings(list(BY_NAME))}
    assert list(by_name) == list(BY_NAME)
    assert by_name["torch"].works
    assert by_name["namespaces"] == ProbeResult(
        "namespaces", False, "not tried, for it needs root and capabilities", tried=False
    )
    assert not by_name["broadcast"].works


@pytest.mark.usefixtures("no_root")
def test_a_lack_ends_with_3_after_the_table_and_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HostError, match=r"lacks root$") as raised:
        doctor.main([])
    assert raised.value.exit_code == 3
    table = capsys.readouterr().out
    assert "root          LACKING" in table
    assert "-> run it with sudo" in table
    assert "ovs           untried" in table
    assert table.count("->") == 1


@pytest.mark.usefixtures("no_root")
def test_json_holds_every_feature(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HostError):
        doctor.main(["--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [entry["name"] for entry in report["features"]] == list(BY_NAME)
    assert all(entry["works"] or not entry["tried"] or entry["remedy"] for entry in report["features"])


def test_only_required_features_count() -> None:
    report = doctor.report(
        [ProbeResult("root", True, ""), ProbeResult("netem", False, "Specified qdisc kind is unknown")]
    )
    assert report["ok"] is True


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(ProbeFailure, match="exited with 7 and said: no such thing"):
        host.output_of(["sh", "-c", "echo no such thing >&2; exit 7"])
    with pytest.raises(ProbeFailure, match="no-such-program is not installed"):
        host.output_of(["no-such-program"])


@pytest.mark.parametrize(
    ("name", "said", "version"),
    [
        ("p4c-bm2-ss", "echo /usr/bin/p4c-bm2-ss >&2; echo Version 1.2.3 >&2", "Version 1.2.3"),
        ("p4c", "echo p4c 1.2.3", "p4c 1.2.3"),
    ],
)
def test_the_compiler_is_found_by_either_name(
    name: str, said: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.p4c() == version


def test_a_lack_of_bmv2_stops_nobody_and_has_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProbeFailure, match=r"^simple_switch is not installed$"):
        kernel.bmv2()
    with pytest.raises(ProbeFailure, match=r"^p4c is not installed$"):
        host.p4c()
    for name in ("bmv2", "p4c"):
        assert not BY_NAME[name].required
        assert BY_NAME[name].remedy == "sudo make p4-tools"


def test_a_container_is_told_which_capability_to_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything_but = (1 << 41) - 1 & ~(1 << 21) & ~(1 << 13)
    assert container.missing_capabilities(f"Name:\tx\nCapEff:\t{everything_but:016x}\n") == [
        "SYS_ADMIN",
        "NET_RAW",
    ]
    assert container.missing_capabilities(f"CapEff:\t{(1 << 41) - 1:016x}\n") == []
    assert not container.is_container(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert container.is_container(tmp_path)
    monkeypatch.setattr(container, "is_container", lambda: True)
    monkeypatch.setattr(container, "missing_capabilities", lambda _: ["NET_ADMIN"])
    monkeypatch.setitem(host.PROBES, "root", lambda: "fine")
    _, finding = trials.findings(["capabilities"])
    row = doctor.row(finding)
    assert (
        "LACKING  root's capabilities that a testbed needs: this container refuses NET_ADMIN (devices" in row
    )
    assert "-> run the container with --privileged, or with --cap-add=NET_ADMIN (docs/containers.md)" in row
    assert "--cap-add=NET_ADMIN" in str(doctor.report([finding]))


def test_the_device_that_open_vswitch_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "TUN", tmp_path / "tun")
    monkeypatch.setattr(container, "is_container", lambda: True)
    with pytest.raises(ProbeFailure, match=r"^this container has no \S+ that opens: No such file") as raised:
        container.tun()
    assert raised.value.remedy is not None
    assert f"--device={tmp_path / 'tun'} " in raised.value.remedy
    monkeypatch.setattr(container, "is_container", lambda: False)
    with pytest.raises(ProbeFailure, match=r"^this host has no") as raised:
        container.tun()
    assert raised.value.remedy is None


def test_an_installed_copy_is_told_packages_that_set_up_installs() -> None:
    for feature in FEATURES:
        lack = ProbeResult(feature.name, False, "")
        assert (
            "make" not in features.remedy_of(lack, checkout=False).split()
            or feature.remedy != features.SET_UP
        )
        assert set(feature.packages) <= set(needed_packages())
    said = features.remedy_of(ProbeResult("bcc", False, ""), checkout=False)
    assert said.startswith(
        "apt-get install python3-bpfcc, and install optinc into an environment that sees it"
    )
    assert features.remedy_of(ProbeResult("bcc", False, "")) == "sudo make setup"


def test_a_chroot_without_proc_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "STATUS", tmp_path / "status")
    with pytest.raises(
        ProbeFailure, match=r"^cannot read \S+: No such file or directory; is /proc mounted\?$"
    ):
        container.capabilities()
