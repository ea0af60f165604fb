"""The list of features, the order in which they are tried, and what the doctor says of the outcome."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed import doctor
from testbed.errors import HostError
from testbed.probing import host, kernel, tried
from testbed.probing.features import BY_NAME, FEATURES, Finding, ProbeFailure, with_needs


def test_each_feature_has_one_probe() -> None:
    assert sorted([*host.PROBES, *kernel.PROBES]) == sorted(BY_NAME)


def test_needs_come_first_and_exist() -> None:
    order = [feature.name for feature in FEATURES]
    for feature in FEATURES:
        assert all(order.index(need) < order.index(feature.name) for need in feature.needs)


def test_needs_of_needs_are_tried() -> None:
    assert with_needs(["mmap"]) == ["root", "headers", "namespaces", "veth", "xdp", "mmap"]


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on which everything would work, had one only root."""

    def refuse() -> str:
        raise ProbeFailure("user id 1000")

    def tried_in_kernel(names: Sequence[str]) -> list[Finding]:
        return [Finding(name, True, "fine") for name in names]

    for name in host.PROBES:
        monkeypatch.setitem(host.PROBES, name, lambda: "fine")
    monkeypatch.setitem(host.PROBES, "root", refuse)
    monkeypatch.setattr(kernel, "findings", tried_in_kernel)


@pytest.mark.usefixtures("no_root")
def test_what_needs_a_lacking_feature_is_not_tried() -> None:
    found = {finding.name: finding for finding in tried.findings(list(BY_NAME))}
    assert list(found) == list(BY_NAME)
    assert found["torch"].works
    assert found["namespaces"] == Finding("namespaces", False, "not tried, for it needs root", tried=False)
    assert not found["broadcast"].works


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
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert [entry["name"] for entry in told["features"]] == list(BY_NAME)
    assert all(entry["works"] or not entry["tried"] or entry["remedy"] for entry in told["features"])


def test_only_required_features_count() -> None:
    told = doctor.report([Finding("root", True, ""), Finding("netem", False, "Specified qdisc kind is unknown")])
    assert told["ok"] is True


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(ProbeFailure, match="exited with 7 and said: no such thing"):
        host.output_of(["sh", "-c", "echo no such thing >&2; exit 7"])
    with pytest.raises(ProbeFailure, match="no-such-program is not installed"):
        host.output_of(["no-such-program"])


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("p4c-bm2-ss", "echo /usr/bin/p4c-bm2-ss >&2; echo Version 1.2.3 >&2", "Version 1.2.3"),
        ("p4c", "echo p4c 1.2.3", "p4c 1.2.3"),
    ],
)
def test_the_compiler_is_found_by_either_name(
    name: str, said: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.p4c() == told


def test_a_lack_of_bmv2_stops_nobody_and_has_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProbeFailure, match=r"^simple_switch is not installed$"):
        kernel.bmv2()
    with pytest.raises(ProbeFailure, match=r"^p4c is not installed$"):
        host.p4c()
    for name in ("bmv2", "p4c"):
        assert not BY_NAME[name].required
        assert BY_NAME[name].remedy == "sudo make p4-tools"
