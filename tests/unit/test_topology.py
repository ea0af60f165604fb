"""Topologies: ready ones, YAML, and one clear line for each mistake."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from testbed.aggregation.site import racks_of
from testbed.emulation.parts import parts
from testbed.errors import RequestError
from testbed.machine.links import NO_DELAY, LinkDelay
from testbed.optics.delays import Delay
from testbed.optics.models.transceivers import Locking, Transceivers
from testbed.topology import catalogue
from testbed.topology.addresses import CORE_DPID, CORE_UNIT, tor_dpid, tor_name
from testbed.topology.load import load, parse
from testbed.topology.model import Bmv2Spec, HostSpec, LinkSpec, LinkStart, Topology
from testbed.topology.places import at_tor
from testbed.topology.yaml_form import words

GOOD = {"units": [{"kind": "gpu", "hosts": 4}, {"kind": "cpu", "hosts": 2}], "scale": 100}


@pytest.mark.parametrize("name", catalogue.READY)
def test_ready_topologies_survive_json(name: str) -> None:
    topology = catalogue.ready(name)
    assert Topology.from_json(topology.to_json()) == topology


def test_the_controllers_library_survives_json() -> None:
    assert parse(GOOD, "plain").controller == "os-ken"
    topology = parse({**GOOD, "controller": "ryu"}, "green")
    assert topology.controller == "ryu"
    assert Topology.from_json(topology.to_json()) == topology


def test_a_bmv2_unit_survives_json() -> None:
    assert parse(GOOD, "plain").bmv2 == Bmv2Spec("wide", False)
    units = [{"hosts": 2, "engine": "bmv2"}, {"hosts": 1}]
    bmv2 = {"layout": "registers", "log": True, "programs": ["owned"]}
    topology = parse({"units": units, "bmv2": bmv2}, "mixed")
    assert topology.bmv2 == Bmv2Spec("registers", True, ("owned",))
    assert [unit.name for unit in topology.units_with("bmv2")] == ["u1"]
    assert topology.unit(1).tor_ports == {"u1-h1": 1, "u1-h2": 2, "u1-o1": 201, "u1-o2": 202}
    assert Topology.from_json(topology.to_json()) == topology


def test_a_list_of_hosts_says_what_each_has() -> None:
    hosts = [{"rate_mbps": 30_000, "cpus": 0.5}, {}, {"rate_mbps": "unshaped"}]
    topology = parse({"units": [{"hosts": hosts}, {"hosts": 1}], "host_rate_mbps": 20_000}, "unequal")
    assert topology.unit(1).hosts == 3
    assert topology.unit(1).unequal == (HostSpec(30_000, 0.5), HostSpec(20_000), HostSpec(None))
    assert topology.host(2, 1) == HostSpec(20_000)
    assert [topology.emulated_host_mbps(1, host) for host in (1, 2, 3)] == [150, 100, None]
    assert topology.cpu_limits == {"u1h1": 0.5}
    assert Topology.from_json(topology.to_json()) == topology


def test_a_number_of_hosts_is_short_for_as_many_equal_ones() -> None:
    equal = [{}, {"rate_mbps": 20_000}]
    long, short = (
        parse({"units": [{"hosts": hosts}], "host_rate_mbps": 20_000}, "equal") for hosts in (equal, 2)
    )
    assert long == short


POD = {"units": [{"racks": 2, "hosts": 3}, {"hosts": 2}], "pod_rate_mbps": 20_000}


def test_a_pod_is_racks_below_a_switch_with_the_optical_ports() -> None:
    topology = parse(POD, "pod")
    pod, rack = topology.units
    assert [tor_name(dpid) for dpid in topology.switches] == ["u1", "u1r1", "u1r2", "u2"]
    names = ["u1r1h1", "u1r1h2", "u1r1h3", "u1r2h1", "u1r2h2", "u1r2h3", "u2h1", "u2h2"]
    assert list(topology.host_names) == names
    assert pod.tor_ports == {"u1-r1": 301, "u1-r2": 302, "u1-o1": 201, "u1-o2": 202}
    assert pod.ports_of(tor_dpid(pod.index, 2)) == {"u1r2-h1": 1, "u1r2-h2": 2, "u1r2-h3": 3, "u1r2-up": 250}
    assert rack.tor_ports == {"u2-h1": 1, "u2-h2": 2, "u2-o1": 201, "u2-o2": 202}
    assert topology.pod_link == LinkSpec(20_000)
    assert Topology.from_json(topology.to_json()) == topology
    usual = parse({"units": POD["units"], "host_rate_mbps": 7_000}, "pod")
    assert usual.pod_link == LinkSpec(7_000), "the rate of a host's link where nothing is said"


def test_a_link_has_the_rate_that_is_said_first_of_it_its_host_its_unit_and_all() -> None:
    hosts = [{"rate_mbps": 7_000}, {}, {"cpus": 1}]
    units = [
        {"racks": 2, "hosts": hosts, "rate_mbps": 5_000},
        {"hosts": 2},
        {"hosts": 1, "rate_mbps": "unshaped"},
    ]
    links = {"u1r2h2": 9_000, "u1o2": "unshaped", "u2h2": 8_000, "u1r1": 6_000}
    topology = parse({"units": units, "links": links, "host_rate_mbps": 20_000}, "unlike")
    rates = {
        name: topology.host(*host).rate_mbps
        for name, host in zip(topology.host_names, topology.hosts, strict=True)
    }
    assert rates == {
        **{
            "u1r1h1": 7_000,
            "u1r1h2": 5_000,
            "u1r1h3": 5_000,
            "u1r2h1": 7_000,
            "u1r2h2": 9_000,
            "u1r2h3": 5_000,
        },
        **{"u2h1": 20_000, "u2h2": 8_000, "u3h1": None},
    }
    assert topology.host(1, topology.unit(1).numbers[2]) == HostSpec(5_000, 1.0)
    assert [topology.pod_mbps(rack) for rack in ("u1r1", "u1r2")] == [6_000, 5_000]
    optical = {port: topology.optical_mbps(port) for port in topology.optical_ports}
    assert optical == {
        "u1o1": 5_000,
        "u1o2": None,
        "u2o1": 20_000,
        "u2o2": 20_000,
        "u3o1": None,
        "u3o2": None,
    }
    assert topology.emulated_host_mbps(2, 2) == 40
    assert Topology.from_json(topology.to_json()) == topology
    assert parse(words(topology), "other") == topology
    assert "link_rates" not in parse(GOOD, "plain").to_json()


def test_delays_and_faults_from_the_start_and_second_names_are_written_and_read_back() -> None:
    units = [{"hosts": [{"name": "web", "exec": "python3 -m http.server 80"}, {}]}, {"hosts": 1}]
    links = {
        "u1o1": {"rate_mbps": 10_000, "delay": "5ms", "jitter": "250us", "loss": "0.1%"},
        "u1h2": {"delay": "2ms"},
        "u2h1": {"rate_mbps": 1_000},
        "u2o1": {"reorder": "1%", "distance": 7, "seed": 3},
    }
    topology = parse({"units": units, "links": links}, "started")
    assert topology.link_rates == {"u1o1": 10_000, "u2h1": 1_000}
    assert topology.link_starts == {
        "u1h2": LinkStart(delay_ms=2),
        "u1o1": LinkStart(delay_ms=5, jitter_ms=0.25, loss=0.001),
        "u2o1": LinkStart(reorder=0.01, distance=7, seed=3),
    }
    assert (topology.commands, topology.second_names) == (
        {"u1h1": "python3 -m http.server 80"},
        {"web": "u1h1"},
    )
    assert Topology.from_json(topology.to_json()) == topology
    assert parse(words(topology), "other") == topology
    delays = {wire.name: wire.delay for wire in parts(topology).wires if wire.delay != NO_DELAY}
    assert delays == {"u1h2": LinkDelay(2), "u1o1": LinkDelay(5, 0.25)}
    assert "link_starts" not in parse(GOOD, "plain").to_json()
    rates = {link: topology.declared_mbps(link) for link in ("u1o1", "u1h2", "u2h1", "u2o1")}
    assert rates == {"u1o1": 10_000, "u1h2": 40_000, "u2h1": 1_000, "u2o1": 40_000}


def test_hosts_links_with_a_rate_of_their_own_are_those_that_systems_see() -> None:
    units = [
        {"racks": 2, "hosts": 2},
        {"hosts": 2, "rate_mbps": 5_000},
        {"hosts": [{"rate_mbps": 4_000}, {}]},
    ]
    topology = parse({"units": units, "links": {"u1r2h1": 30_000}}, "unlike")
    racks = racks_of(topology)
    seen = [rack.rate_mbps(host) for rack in racks for _, host in rack.members()]
    assert seen == [topology.host(*host).rate_mbps for host in topology.hosts]
    assert seen[:4] == [40_000, 40_000, 30_000, 40_000]
    pod = racks[0]
    assert pod.fastest(pod.members(), 3) == [pod.members()[at] for at in (0, 1, 3)]


def test_a_core_joins_units_that_need_no_optical_ports_then() -> None:
    units = [{"hosts": 1}, {"hosts": 1, "optical_ports": 0}, {"hosts": 1, "racks": 2, "rate_mbps": 5_000}]
    topology = parse({"units": units, "core": {"rate_mbps": 10_000}, "links": {"u2c": 7_000}}, "cored")
    assert [topology.core_mbps(f"u{unit}c") for unit in (1, 2, 3)] == [10_000, 7_000, 5_000]
    assert topology.ocs.circuits == (("u1o1", "u3o1"),), "the ring leaves units without ports out"
    assert [tor_name(dpid) for dpid in topology.switches] == ["u1", "u2", "u3", "u3r1", "u3r2", "core"]
    assert topology.unit(2).tor_ports == {"u2-h1": 1, "u2-core": 241}
    assert topology.unit(1).links == ("u1h1", "u1o1", "u1o2", "u1c")
    assert topology.engines == {1: "xdp", 2: "xdp", 3: "xdp", CORE_UNIT: "none"}
    core = at_tor(CORE_DPID)
    assert (str(core), core.tor) == ("core", CORE_DPID), "results pass there as at any switch"
    wires = {wire.name: wire for wire in parts(topology).wires}
    assert (wires["u2c"].a.device, wires["u2c"].b.device, wires["u2c"].rate_mbps) == (
        "u2-core",
        "core-u2",
        35,
    )
    assert Topology.from_json(topology.to_json()) == topology
    assert parse(words(topology), "other") == topology
    assert parse({**GOOD, "core": {}}, "usual").core_link == LinkSpec(40_000), "as hosts' links"
    assert "core" not in parse(GOOD, "plain").to_json().replace("has_core", "")


def test_ports_are_of_planes_with_latencies_of_their_own() -> None:
    planes = {"mems": {}, "fast": {"switch_ms": 0.05, "lock_failure": 0.1}}
    units = [
        {"hosts": 1, "optical_ports": {"fast": 1, "mems": 2}},
        {"hosts": 1},
        {"hosts": 1, "optical_ports": 1},
    ]
    ports = {"mems": 1, "fast": 1}
    topology = parse({"units": units, "optical_ports": ports, "ocs": {"planes": planes}}, "planes")
    assert topology.planes == {
        **{"u1o1": "mems", "u1o2": "mems", "u1o3": "fast"},
        **{"u2o1": "mems", "u2o2": "fast", "u3o1": "mems"},
    }
    assert set(map(frozenset, topology.ocs.circuits)) == {
        frozenset(pair) for pair in (("u1o1", "u2o1"), ("u3o1", "u1o2"), ("u1o3", "u2o2"))
    }
    assert topology.scheduled_ports == {1: ("u1o1", "u1o2"), 2: ("u2o1",), 3: ("u3o1",)}
    model = Transceivers(topology.ocs.settings)
    assert model.at_plane("switch_ms", "fast") == Delay("constant", 0.05)
    assert model.at_plane("lock_failure", "fast") == 0.1
    assert model.at_plane("switch_ms", "mems") == Delay("constant", 10.0)
    assert Topology.from_json(topology.to_json()) == topology
    assert parse(words(topology), "other") == topology
    assert set(parse(GOOD, "plain").planes.values()) == {""}


def test_transceivers_and_distributions_survive_json_and_words() -> None:
    ports = {"u1o2": {"lock_ms": {"lognormal": [40, 10]}, "lock_failure": 0.3}, "u2o1": {"retry_ms": 9}}
    ocs = {
        "lock_ms": {"values": [1, 2.5]},
        "lock_failure": 0.1,
        "retry_ms": {"normal": [5, 1]},
        "ports": ports,
    }
    topology = parse({**GOOD, "ocs": ocs}, "optics")
    model = Transceivers(topology.ocs.settings)
    of_u1o2 = Locking(Delay("lognormal", 40.0, 10.0), 0.3, Delay("normal", 5.0, 1.0))
    assert model.at_port("u1o2") == of_u1o2
    assert model.at_port("u2o1") == Locking(None, 0.1, Delay("constant", 9.0))
    assert model.at_port("u1o1") == Locking(None, 0.1, Delay("normal", 5.0, 1.0))
    assert Topology.from_json(topology.to_json()) == topology
    assert parse(words(topology), "other") == topology


def test_a_trace_is_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mems.txt").write_text("# microseconds\n11500\n\n12000.5 # slow\n9000\n")
    file = tmp_path / "traced.yaml"
    file.write_text(yaml.safe_dump({**GOOD, "ocs": {"switch_ms": {"trace_us": "mems.txt"}}}))
    topology = load(file)
    assert topology.ocs.settings["switch_ms"] == Delay("values", values=(11.5, 12.0005, 9.0))
    assert parse(words(topology), "traced") == topology
    file.write_text(yaml.safe_dump({**GOOD, "ocs": {"switch_ms": {"trace_ms": str(tmp_path / "mems.txt")}}}))
    assert load(file).ocs.settings["switch_ms"].values == (11500.0, 12000.5, 9000.0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "read .*trace: No such file or directory"),
        ("", "ocs.lock_ms: .*trace has no values; 1 to 10000 are accepted"),
        ("3\nfast\n", "ocs.lock_ms: .*trace line 2: fast; a number from 0 to 60000 is accepted"),
        ("nan\n", "ocs.lock_ms: .*trace line 1: nan; a number"),
        ("60001\n", "ocs.lock_ms: .*trace line 1: 60001; a number from 0 to 60000 is accepted"),
        ("1\n" * 10_001, "ocs.lock_ms: .*trace has more than 10000 values; 1 to 10000 are accepted"),
        ("# much\n" * 200_000, "read .*trace: more than 1048576 bytes"),
        ("\xff", "read .*trace: not UTF-8 text"),
    ],
)
def test_a_bad_trace_is_one_line(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "trace").write_bytes(content.encode("latin-1"))
    file = tmp_path / "traced.yaml"
    file.write_text(yaml.safe_dump({**GOOD, "ocs": {"lock_ms": {"trace_ms": "trace"}}}))
    with pytest.raises(RequestError, match=said) as caught:
        load(file)
    assert "\n" not in str(caught.value)


def test_a_trace_that_is_a_pipe_or_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = tmp_path / "traced.yaml"
    for name in ("pipe", "."):
        file.write_text(yaml.safe_dump({**GOOD, "ocs": {"lock_ms": {"trace_ms": name}}}))
        with pytest.raises(RequestError, match="not a file; a file of numbers, one a line, is accepted"):
            load(file)


def test_hosts_of_each_rack_of_a_pod_are_unequal_alike() -> None:
    hosts = [{"rate_mbps": 30_000, "cpus": 0.5}, {}]
    topology = parse({"units": [{"racks": 2, "hosts": hosts}], "host_rate_mbps": 20_000}, "unequal")
    assert [topology.emulated_host_mbps(*host) for host in topology.hosts] == [150, 100, 150, 100]
    assert topology.cpu_limits == {"u1r1h1": 0.5, "u1r2h1": 0.5}


def test_racks_alone_say_nothing_of_pods() -> None:
    said = parse(GOOD, "racks").to_json()
    assert "rack" not in said.replace("racks", "", 1)
    assert "pod" not in said


def test_default_is_the_paper_s_testbed() -> None:
    topology = catalogue.ready("default")
    assert [(unit.kind, unit.hosts) for unit in topology.units] == [
        ("gpu", 4),
        ("gpu", 4),
        ("cpu", 2),
        ("cpu", 2),
    ]
    assert {unit.optical_ports for unit in topology.units} == {2}
    assert topology.host_link.rate_mbps == 40_000


def test_a_list_instead_of_keys() -> None:
    with pytest.raises(RequestError, match="configuration: "):
        parse([1], "test")


def test_a_pipe_is_read_and_without_a_writer_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RequestError, match=r"read .*pipe: a pipe to which nobody writes; a file is accepted"):
        load(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    os.write(writer, b"units: [{hosts: 2}]\n")
    os.close(writer)
    assert len(load(pipe).units) == 1
    os.close(reader)


@pytest.mark.parametrize("name", ["", "x" * 61, "a\nb", ["a"]])
def test_a_configurations_name_is_short_and_of_one_line(name: object) -> None:
    with pytest.raises(RequestError, match=r"^name: .*; a line of 1 to 60 characters is accepted$"):
        parse({"name": name, "units": [{"hosts": 2}]}, "file")


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    twice = tmp_path / "twice.yaml"
    twice.write_text("units:\n  - {hosts: 2}\nmtu: 1500\nunits: [{hosts: 3}]\n")
    with pytest.raises(RequestError, match=r"twice\.yaml line 4: not YAML: key 'units' is there twice"):
        load(twice)
    twice.write_text("units: [{hosts: 2, kind: cpu, hosts: 3}]\n")
    with pytest.raises(RequestError, match=r"line 1: .*key 'hosts' is there twice"):
        load(twice)
    twice.write_text("units: [&one {hosts: 2}, {<<: *one, hosts: 3}]\n")
    assert len(load(twice).hosts) == 5  # a merged key may be overridden


def test_file_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"absent\.yaml: No such file"):
        load(tmp_path / "absent.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("units: [\n  {kind: gpu")
    with pytest.raises(RequestError, match=r"broken.yaml line 2: not YAML"):
        load(broken)
    good = tmp_path / "good.yaml"
    good.write_text(yaml.safe_dump(GOOD))
    assert load(good).name == "good"


def test_a_configuration_comes_from_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(GOOD)))
    piped = catalogue.find("-")
    assert piped == replace(parse(GOOD, "good"), name=piped.name)
    for text, says in (
        ("units: [\n", "standard input line 2: not YAML"),
        ("units: 3", "standard input: units: 3"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        with pytest.raises(RequestError, match=f"^{says}"):
            catalogue.find("-")


def test_an_unknown_ready_name_lists_the_ready_ones() -> None:
    with pytest.raises(RequestError, match="no such file, and the ready ones are default, rack, eight"):
        catalogue.find("nine")


def test_a_single_unit_has_no_optics() -> None:
    assert parse({"units": [{"hosts": 3}]}, "one").optical_ports == ()
