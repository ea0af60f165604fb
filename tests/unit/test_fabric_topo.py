"""Topologies in Mininet's words: what they come to, what is refused in one line, and whose process makes a
user's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import up
from testbed.client.caller import Caller
from testbed.emulation import user_topo
from testbed.emulation.net import FabricNet
from testbed.emulation.nodes import FabricView
from testbed.emulation.parts import parts
from testbed.emulation.topo import FabricTopo
from testbed.emulation.user_topo import topology_of
from testbed.errors import HostError, RequestError
from testbed.topology.catalogue import READY, ready
from testbed.topology.load import AtUp, parse
from testbed.topology.model import HostSpec, LinkSpec, LinkStart, Topology
from testbed.topology.values import AUTO_SCALE
from testbed.topology.yaml_form import words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mininet.md"
FILES = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
ME = Caller.of(os.geteuid())
ENVIRON = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PAGE.parents[1])}

DELAYS = st.one_of(
    st.integers(0, 60_000),
    st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda ends: {"uniform": sorted(ends)}),
    st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda values: {"normal": list(values)}),
    st.lists(st.integers(0, 100), min_size=1, max_size=4).map(lambda values: {"values": values}),
)
HOSTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "rate_mbps": st.one_of(st.just("unshaped"), st.integers(400, 40_000)),
            "cpus": st.integers(1, 32).map(lambda eighths: eighths / 8),
        },
    ),
    min_size=1,
    max_size=5,
)
OF_UNITS: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["gpu", "cpu", "optimizer"]),
    "hosts": st.one_of(st.integers(1, 5), HOSTS),
    "optical_ports": st.integers(1, 4),
    "engine": st.sampled_from(["xdp", "bmv2", "none"]),
}
UNITS = st.fixed_dictionaries(OF_UNITS)
PODS = st.fixed_dictionaries({**OF_UNITS, "racks": st.integers(1, 3)})
CONFIGURATIONS = st.fixed_dictionaries(
    {"units": st.lists(st.one_of(UNITS, PODS), min_size=1, max_size=5)},
    optional={
        "host_rate_mbps": st.one_of(st.just("unshaped"), st.integers(400, 40_000)),
        "optical_rate_mbps": st.one_of(st.just("unshaped"), st.floats(400, 40_000)),
        "buffer_packets": st.integers(16, 10_000),
        "mtu": st.integers(1280, 3000),
        "scale": st.integers(2, 300),
        "inc": st.fixed_dictionaries({"jobs": st.integers(1, 32)}),
        "ocs": st.fixed_dictionaries(
            {}, optional={"switch_ms": DELAYS, "lock_ms": DELAYS, "seed": st.integers(0, 99)}
        ),
        "bmv2": st.just({"layout": "registers", "log": True, "programs": ["blocks"]}),
        "controller": st.just("ryu"),
    },
)


class Described(FabricTopo):
    """A configuration, said again by Mininet's three calls, hosts before switches are linked."""

    def build(self, configuration: dict[str, Any]) -> None:
        own = any(isinstance(unit["hosts"], list) for unit in configuration["units"])
        said = {"units", "optical_rate_mbps", "buffer_packets"} | (set() if own else {"host_rate_mbps"})
        self.settings = {"scale": 200, **{k: v for k, v in configuration.items() if k not in said}}
        queue = {"max_queue_size": configuration.get("buffer_packets", 256)}
        host_bw = configuration.get("host_rate_mbps", 40_000)
        optical_bw = configuration.get("optical_rate_mbps", host_bw)
        pod_bw = configuration.get("host_rate_mbps", 40_000)
        usual_bw = {} if own else {"bw": host_bw}
        self.settings = {**({"host_rate_mbps": 40_000} if own else {}), **self.settings}
        oxc = self.addSwitch("oxc")
        for index, unit in enumerate(configuration["units"], 1):
            racks = [f"r{rack}" for rack in range(1, unit["racks"] + 1)] if "racks" in unit else [""]
            specs = [{}] * unit["hosts"] if isinstance(unit["hosts"], int) else unit["hosts"]
            cpus = [{"cpus": spec["cpus"]} if "cpus" in spec else {} for spec in specs]
            hosts = [
                (rack, self.addHost(f"u{index}{rack}h{number}", **cpus[number - 1]), specs[number - 1])
                for rack in racks
                for number in range(1, len(specs) + 1)
            ]
            tor = self.addSwitch(f"u{index}", kind=unit["kind"], engine=unit["engine"])
            for rack in racks if "racks" in unit else ():
                self.addLink(tor, self.addSwitch(f"u{index}{rack}"), bw=pod_bw, **queue)
            for rack, host, spec in reversed(hosts):
                bw = {"bw": spec["rate_mbps"]} if "rate_mbps" in spec else usual_bw
                self.addLink(f"u{index}{rack}", host, **bw, **queue)
            for _ in range(unit["optical_ports"]):
                self.addLink(oxc, tor, bw=optical_bw, **queue)


@given(CONFIGURATIONS)
def test_a_topology_is_the_same_in_a_file_s_words_and_in_mininet_s(configuration: dict[str, Any]) -> None:
    topology = parse(configuration, "Described")
    assert parse(words(topology), "") == topology
    assert FabricTopo(topology).topology == topology
    assert Described(configuration).topology == topology
    links = [link for unit in topology.units for link in unit.links]
    own = {link: rate for link, rate in zip(links, cycle((500.0, "unshaped", 30_000)), strict=False)}
    unlike = parse({**configuration, "links": own, "host_rate_mbps": 777}, "Unlike")
    assert parse(words(unlike), "") == unlike
    assert Topology.from_json(unlike.to_json()) == unlike
    assert {wire.name: wire.rate_mbps for wire in parts(unlike).wires} == {
        link: unlike.emulated_mbps(None if rate == "unshaped" else float(rate)) for link, rate in own.items()
    }
    graph = FabricTopo(unlike)
    said = {info["intfName2"]: info.get("bw") for _, _, info in graph.iterLinks(withInfo=True)}
    assert said == {wire.b.device: unlike.link_rates[wire.name] for wire in parts(unlike).wires}


def test_links_may_differ_in_bw() -> None:
    class Unlike(FabricTopo):
        def build(self) -> None:
            self.addUnit(1, optical_ports=2, optical_bw=100, bw=50)
            self.addUnit(1, optical_ports=0, bw=50, racks=2, pod_bw=30)
            self.addLink("u2", "oxc", bw=70)
            self.addSwitch("u3")
            self.addLink(self.addHost("u3h1"), "u3", bw=50)
            self.addLink("u3", "oxc")

    assert Unlike().configuration()["links"] == {"u1o1": 100, "u1o2": 100, "u2o1": 70}
    Unlike.settings = {"optical_rate_mbps": 100}
    topology = Unlike().topology
    rates = [topology.optical_mbps(port) for port in topology.optical_ports]
    assert rates == [100, 100, 70, 100]
    assert topology.pod_link == LinkSpec(30)


@pytest.mark.parametrize("name", READY)
def test_nodes_links_and_ports_are_those_that_are_made(name: str) -> None:
    topology = ready(name)
    net, made = FabricView(FabricTopo(topology)), parts(topology)
    assert [host.name for host in net.hosts] == list(topology.host_names)
    assert [(host.IP(), host.MAC()) for host in net.hosts] == [
        (address.address, wire.a.mac)
        for address in made.hosts
        for wire in made.wires
        if wire.name == address.namespace
    ]
    bridges = {bridge.name: {port.device: port.number for port in bridge.ports} for bridge in made.bridges}
    assert bridges == {
        switch.name: {intf.name: port for intf, port in switch.ports.items() if intf.name != "lo"}
        for switch in net.switches
    }
    ends = {(link.intf1.name, link.intf2.name) for link in net.links}
    assert ends == {(wire.a.device, wire.b.device) for wire in made.wires}


def test_a_rate_without_a_scale_is_what_the_link_gets() -> None:
    def rates(settings: dict[str, Any], **bw: int) -> tuple[float | None, float | None]:
        class Made(FabricTopo):
            def build(self) -> None:
                self.settings = settings
                self.addUnit(2, **bw)
                self.addUnit(1, **bw)

        topology = Made().topology
        return (
            topology.emulated_mbps(topology.host_link.rate_mbps),
            topology.emulated_mbps(topology.optical_link.rate_mbps),
        )

    assert rates({}, bw=100, optical_bw=50) == (100, 50)
    assert rates({}, bw=100) == (100, 100)
    assert rates({}) == (200, 200)
    assert rates({"scale": 10}, bw=100, optical_bw=50) == (10, 5)
    assert rates({"host_rate_mbps": 4000}) == (20, 20)


def test_options_for_what_says_nothing_are_mininet_s() -> None:
    class Plain(FabricTopo):
        def build(self, hosts: int) -> None:
            tor = self.addSwitch("u1")
            for host in range(1, hosts + 1):
                self.addLink(tor, self.addHost(f"u1h{host}"))

    topology = Plain(3, sopts={"engine": "none"}, lopts={"bw": 70}).topology
    assert (topology.units[0].engine, topology.units[0].hosts) == ("none", 3)
    assert topology.host_link.rate_mbps == 70
    limited = Plain(3, hopts={"cpu": 0.5}).topology
    assert limited.cpu_limits == dict.fromkeys(("u1h1", "u1h2", "u1h3"), 0.5 * (os.cpu_count() or 1))


def test_hosts_may_differ_in_mininet_s_words() -> None:
    class Unequal(FabricTopo):
        def build(self) -> None:
            self.addUnit([{"bw": 30, "cpus": 0.5}, {}, {"bw": "unshaped"}], bw=100, optical_bw=50)
            self.addUnit(1, bw=20, optical_bw=50)

    topology = Unequal().topology
    assert topology.units[0].unequal == (HostSpec(30, 0.5), HostSpec(100), HostSpec(None))
    assert (topology.host_link.rate_mbps, topology.host(2, 1)) == (100, HostSpec(20))


def _linked(topo: FabricTopo, **opts: Any) -> None:
    topo.addLink(topo.addHost("u1h1"), topo.addSwitch("u1"), **opts)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda topo: topo.addHost("h1"), "addHost('h1'): accepted are u1h1, u1h2, ... for hosts of unit u1"),
        (lambda topo: topo.addSwitch("s1"), "addSwitch('s1'): accepted are u1, u2, ... for units and oxc"),
        (lambda topo: topo.addHost("u1h300"), "addHost('u1h300'): accepted are u1h1"),
        (lambda topo: topo.addHost("u1r2h300"), "addHost('u1r2h300'): accepted are u1h1"),
        (lambda topo: topo.addHost("u257h1"), "addHost('u257h1'): accepted are u1h1"),
        (lambda topo: topo.addHost("u1r65h1"), "addHost('u1r65h1'): accepted are u1h1"),
        (lambda topo: topo.addSwitch("u257"), "addSwitch('u257'): accepted are u1, u2, ... for units"),
        (lambda topo: topo.addHost("u1h1", cores=1), "addHost('u1h1'): cores: cpu and cpus say how much of"),
        (
            lambda topo: topo.addHost("u1h1", cpu=2),
            "addHost('u1h1'): cpu: 2; a share of the machine, up to 1",
        ),
        (lambda topo: topo.addHost("u1h1", cpu=0.5, cpus=1), "addHost('u1h1'): cpu and cpus say the same"),
        (
            lambda topo: topo.addUnit([{"cpus": -1}]),
            "units[0].hosts[0].cpus: -1; a number of cores from 0.05",
        ),
        (
            lambda topo: topo.addUnit([{"bw": 9, "mac": 1}]),
            "addHost('u1h1'): mac: names, ports and addresses",
        ),
        (lambda topo: topo.addHost("u1h1", ip="10.0.0.1"), "addHost('u1h1'): ip: names, ports and addresses"),
        (lambda topo: topo.addSwitch("u1", dpid="7"), "addSwitch('u1'): dpid: names, ports and addresses"),
        (
            lambda topo: topo.addSwitch("oxc", kind="gpu"),
            "addSwitch('oxc'): kind: unknown parameter; none is",
        ),
        (
            lambda topo: _linked(topo, use_tbf=True),
            "use_tbf: unknown parameter; accepted are bw, max",
        ),
        (lambda topo: _linked(topo, colour=1), "colour: unknown parameter; accepted are bw, max_queue_size"),
        (lambda topo: _linked(topo, bw="fast"), "host_rate_mbps: fast; a rate in Mb/s or the word unshaped"),
        (lambda topo: _linked(topo, bw=1e6), "host_rate_mbps: 1000000.0 at scale 1 is 1e+06 Mb/s; from 1 to"),
        (lambda topo: _linked(topo, max_queue_size=1), "buffer_packets: 1; a whole number from 16 to 10000"),
        (lambda topo: topo.addLink("u1h1", "u1"), "addLink('u1h1', 'u1'): u1h1 was not added"),
        (lambda topo: [_linked(topo), topo.addLink("u1h1", "u1")], "a host has one link, and u1h1 has it"),
        (lambda topo: [_linked(topo), topo.addHost("u1h1")], "addHost('u1h1'): it is there already"),
        (lambda topo: [_linked(topo), topo.addHost("u1h2")], "u1h2: it has no link; addLink('u1h2', 'u1')"),
        (lambda topo: [_linked(topo), topo.addHost("u2h1")], "u2h1: u2 was not added"),
        (
            lambda topo: [topo.addUnit(2), topo.addSwitch("u3")],
            "u2: it was not added, and units have no gaps",
        ),
        (lambda topo: [topo.addSwitch("u1"), topo.addHost("u1h2")], "u1h1: it was not added, and hosts of a"),
        (
            lambda topo: [topo.addUnit(2), topo.addUnit(2), topo.addLink("u1", "u2")],
            "accepted are a host with",
        ),
        (lambda topo: topo.addSwitch("u1r1"), "addSwitch('u1r1'): add u1, the switch of its pod, before it"),
        (
            lambda topo: [topo.addUnit(2, racks=1), topo.addSwitch("u1r3")],
            "u1r2: it was not added, and racks of a pod have no gaps",
        ),
        (
            lambda topo: [topo.addUnit(2, racks=1), topo.addSwitch("u1r2")],
            "u1r2: it has no link; addLink('u1r2', 'u1')",
        ),
        (
            lambda topo: [topo.addUnit(2, racks=1), topo.addLink(topo.addHost("u1h1"), "u1")],
            "u1: it is a pod, whose hosts are below its racks' ToRs",
        ),
        (
            lambda topo: [topo.addUnit(2, racks=2), topo.addLink(topo.addHost("u1r2h3"), "u1r2")],
            "u1: u1r1 and u1r2 have other hosts; racks of a pod have equally many, and alike",
        ),
        (
            lambda topo: [topo.addUnit(2, racks=1), topo.addUnit(2), topo.addLink("u1r1", "u2")],
            "u1r1 is the ToR of a rack of u1, and linked with that",
        ),
        (
            lambda topo: [topo.addUnit(2, racks=1), topo.addLink("u1", "u1r1")],
            "a ToR has one link to its pod switch, and u1r1 has it",
        ),
        (
            lambda topo: topo.addUnit(2, racks=65),
            "addSwitch('u1r65'): accepted are u1, u2, ... for units and oxc for the optical switch, and "
            "u1r1, u1r2, ... for racks of a pod; units to 250, racks to 64",
        ),
        (lambda topo: topo.addUnit(201), "addHost('u1h201'): accepted are u1h1"),
        (lambda topo: topo.addUnit(2, engine="tofino"), "units[0].engine: tofino; xdp, bmv2, none are"),
        (lambda topo: topo.addUnit(0), "units[0].hosts: 0; a whole number from 1 to 200"),
        (lambda topo: None, "units: []; a list of 1 to 250 units is accepted"),
        (lambda topo: setattr(topo, "settings", {"paint": 1}), "paint: 1; unknown key; accepted are name"),
        (lambda topo: setattr(topo, "settings", {"units": 1}), "settings['units']: nodes and links say that"),
        (
            lambda topo: setattr(topo, "settings", [1]),
            "settings: [1]; keys and values of a file are accepted",
        ),
    ],
)
def test_what_has_no_place_is_one_line(build: Callable[[FabricTopo], object], says: str) -> None:
    class Made(FabricTopo):
        def build(self) -> None:
            build(self)

    with pytest.raises(RequestError) as refusal:
        Made().topology  # noqa: B018
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_network_that_is_built_keeps_its_topology() -> None:
    net = FabricView(FabricTopo(ready("rack")))
    for change in (
        lambda: net.addHost("u1h5"),
        lambda: net.addSwitch("u2"),
        lambda: net.addLink("u1h1", "u1"),
        net.addNAT,
        net.addController,
        lambda: net.delHost(net.get("u1h1")),
        lambda: net.delSwitch(net.get("u1")),
        lambda: net.delLinkBetween(net.get("u1h1"), net.get("u1")),
    ):
        with pytest.raises(RequestError):
            change()
    assert (len(net.hosts), len(net.switches), len(net.links)) == (4, 1, 4)


def test_where_mininet_is_missing_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "TOOLS", {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(HostError, match=r"^mininet not installed: apt install mininet, or make setup$"):
        up.main(["--config", "pair.py:Pair"])


# ------------------------------------------------------------------ a user's class


def test_the_page_s_two_ways_are_one_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    pair, same = topology_of("pair.py:Pair", ME, ENVIRON), topology_of("same.py:Same", ME, ENVIRON)
    assert (pair.name, pair.units, pair.ocs, pair.scale) == ("Pair", same.units, same.ocs, 1)
    assert (pair.host_link, pair.optical_link) == (same.host_link, same.optical_link)
    racks = topology_of("racks.py:racks", ME, ENVIRON)
    assert (racks.name, len(racks.units), racks.scale) == ("racks", 8, 400)


def test_a_class_may_leave_its_scale_to_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    assert topology_of("pair.py:Pair", ME, ENVIRON, AtUp("auto")).scale == AUTO_SCALE
    Path("mine.py").write_text(f"{FILES['pair.py']}    settings = {{'scale': 'auto'}}\n")
    assert topology_of("mine.py:Pair", ME, ENVIRON, AtUp()).scale == AUTO_SCALE
    with pytest.raises(RequestError, match=r"^--config mine\.py:Pair: scale: auto; only `testbed up`"):
        topology_of("mine.py:Pair", ME, ENVIRON)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def made(): return ready('eight')", None),
        ("def made(): return FabricTopo(ready('eight'))", None),
        ("\ndef made():\n    return 1 / 0", "it raised ZeroDivisionError: division by zero (line 6)"),
        ("def made(): raise RuntimeError('a\\nb')", "it raised RuntimeError: a ... (line 4)"),
        ("def other(): pass", "it raised AttributeError: module 'users_mine' has no attribute 'made'"),
        ("def made(): return 7", "it made a int; a FabricTopo, a Topology, or the keys and values"),
        ("made = Topo", "it made a Topo of Mininet's own; a FabricTopo, a Topology, or"),
        ("def made(): return {'units': [{'hosts': 0}]}", "units[0].hosts: 0; a whole number from 1 to 200"),
        ("def made(): return {'units': object()}", "it raised TypeError: Object of type object is not JSON"),
        ("def made(): raise SystemExit(3)", "it ended without an answer"),
        ("def made(): return {'name': 'x' * 3000000}", "an answer of more than 1048576 bytes"),
        ("import time\ndef made(): time.sleep(60)", "no topology within 2 s"),
    ],
)
def test_what_a_users_class_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_topo, "WITHIN_S", 2.0 if says and says.startswith("no topo") else 30.0)
    imports = "from mininet.topo import Topo\nfrom testbed.emulation.topo import FabricTopo\n"
    Path("mine.py").write_text(f"{imports}from testbed.topology.catalogue import ready\n{text}\n")
    if says is None:
        assert topology_of("mine.py:made", ME, ENVIRON) == ready("eight")
        return
    with pytest.raises(RequestError) as refusal:
        topology_of("mine.py:made", ME, ENVIRON)
    assert str(refusal.value).startswith(f"--config mine.py:made: {says}")
    assert "\n" not in str(refusal.value)


def test_a_network_that_was_stopped_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices and switches are made once, and no more after that."""
    made: list[str] = []
    for part in ("_make_devices", "_make_switches"):
        monkeypatch.setattr(FabricNet, part, lambda self, part=part: made.append(part))
    net = FabricNet(FabricTopo(ready("default")), tmp_path)
    net.start()
    net.stop()
    for step in (net.start, net.build):
        with pytest.raises(
            RequestError, match=f"^{step.__name__}: a network that was stopped does not start"
        ):
            step()
    net.stop()
    assert made == ["_make_devices", "_make_switches"]


def test_delays_and_losses_are_those_of_mininet() -> None:
    class Delayed(FabricTopo):
        def build(self) -> None:
            for unit in ("u1", "u2"):
                self.addSwitch(unit)
            self.addSwitch("oxc")
            self.addLink(self.addHost("u1h1"), "u1", bw=100, delay="1ms", jitter="0.5ms", loss=0.1)
            self.addLink(self.addHost("u2h1"), "u2", bw=100)
            self.addLink("u1", "oxc", bw=50, delay="5ms")
            self.addLink("u2", "oxc", bw=100, loss="2%")

    topology = Delayed().topology
    assert topology.link_starts == {
        "u1h1": LinkStart(delay_ms=1, jitter_ms=0.5, loss=0.001),
        "u1o1": LinkStart(delay_ms=5),
        "u2o1": LinkStart(loss=0.02),
    }
    assert (topology.declared_mbps("u1o1"), topology.declared_mbps("u2o1")) == (50, 100)
