"""The emulated network on the real kernel: reachability, rates through a switch, read-backs, and that nothing
outlives it.

Each test runs a scenario of this file in namespaces of its own (`python -m tests.privileged.test_emulation
SCENARIO`), where there is no controller: the flows are added by hand.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.links import set_offloads
from testbed.emulation.namespaces import command
from testbed.emulation.net import FabricNet
from testbed.emulation.netlink import RouteSocket, delete_device
from testbed.emulation.offloads import FeatureControl
from testbed.emulation.openvswitch import Bridge, OpenVSwitch, Port
from testbed.emulation.topo import FabricTopo
from testbed.errors import SettingError, TestbedError
from testbed.topology import addresses
from testbed.topology.catalogue import ready
from testbed.topology.model import IncSpec, LinkSpec, Topology, UnitSpec
from testbed.topology.optical import OcsSpec
from tests.conftest import lacking
from tests.limits import CALL_S
from tests.privileged.commands import bounded
from tests.privileged.wire_cases import TOLERANCE, judged, processor_times, shares

LOGS = Path("/run/openvswitch/log")
LIMIT_S = 240
LATE_S = 60
TRIES = 3  # of a rate: a machine of few cores stalls now and then
LEAST_BYTES = 15_000_000
FRAME_BYTES, TCP_PAYLOAD_BYTES = 1514, 1448
NOBODY = 65534
OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT)

RECEIVE_TCP = """
import array, fcntl, json, socket, termios, time
s = socket.socket(); s.bind(("0.0.0.0", 7001)); s.listen()
print("ready", flush=True)
c, _ = s.accept(); total = 0; warm = start = None
while data := c.recv(1 << 18):
    now = time.monotonic()
    if warm is None: warm = now + 0.5
    if start is not None: total += len(data); last = now
    elif now >= warm:
        # what came before, and was not read yet, is not of this time
        waiting = array.array("i", [0]); fcntl.ioctl(c, termios.FIONREAD, waiting)
        start = last = time.monotonic(); total = -waiting[0]
print(json.dumps({"mbps": total * 8 / 1e6 / (last - start) if total > 0 else 0.0}), flush=True)
"""
SEND_TCP = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7001), 30); data = bytes(1 << 16); sent = 0
end, least = time.monotonic() + float(sys.argv[2]), int(sys.argv[3])
while time.monotonic() < end or sent < least: s.sendall(data); sent += len(data)
s.close()
"""


# ------------------------------------------------------------------ outside


def as_a_background_job() -> None:
    """Ignore Ctrl-C, as a process does that a shell without job control starts in the background."""
    for number in OF_A_TERMINAL:
        signal.signal(number, signal.SIG_IGN)


def inside(scenario: str, begin: Callable[[], None] | None = None) -> Any:
    """Run a scenario in namespaces of its own; what it returned."""
    argv = command([sys.executable, "-m", "tests.privileged.test_emulation", scenario], "emulation-test")
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=LIMIT_S, check=False, preexec_fn=begin
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.usefixtures("nothing_left")
class TestFabric:
    def test_hosts_reach_each_other_inside_a_unit_and_across_a_circuit(self) -> None:
        reached = inside("reach")
        assert reached["lost_percent"] == {"inside": 0.0, "across": 0.0}
        assert reached["without_circuit"] == 100.0
        assert reached["shells"] == 5, "only hosts that ran a command have a shell"
        assert reached["left"] == ["lo"], "down leaves the loopback alone"

    @pytest.mark.alone
    def test_a_rate_holds_through_the_switch(self) -> None:
        measured = inside("rate_through_switch")
        if measured["verdict"] == "inconclusive":
            lacking("quiet", f"no processor time left to judge the rate by: {measured}")
        assert measured["verdict"] == "holds", measured
        first, second = measured["bytes"]
        assert first >= second > LEAST_BYTES

    @pytest.mark.alone
    def test_an_unshaped_link_is_one_pair_and_faster(self) -> None:
        measured = inside("unshaped")
        assert measured["inner_devices"] == ["lo"]
        assert measured["mbps"] > 60

    def test_settings_are_read_back(self) -> None:
        assert inside("read_back") == {
            "offloads_wrong": [],
            "same_port_twice": "SettingError: bridge b: PORT was asked for as port 7 and reads back",
            "feature": "SettingError: u1-h1: feature rx-gro was set off and reads back on",
            "gro_after_reset": False,
        }

    def test_a_dead_open_vswitch_is_noticed(self) -> None:
        assert inside("death").startswith(
            "TestbedError: ovs-vswitchd was killed by signal 9; its last words: "
        )

    def test_processes_run_as_the_user_in_their_hosts_namespace_and_end_with_the_fabric(self) -> None:
        seen = inside("processes", as_a_background_job)
        assert seen["ignored"] == [], (
            "what a shell ignores for its background jobs is heard by what they start"
        )
        assert seen["identity"] == [NOBODY, NOBODY, [NOBODY]]
        assert seen["namespace_is_the_hosts"] is True
        assert seen["killed_by"] == -signal.SIGKILL

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    @pytest.mark.parametrize("begin", [None, as_a_background_job], ids=["as usual", "in the background"])
    def test_init_passes_signals_on_and_ends_with_the_daemons_status(
        self, number: signal.Signals, begin: Callable[[], None] | None
    ) -> None:
        argv = command(
            ["sh", "-c", "trap 'exit 7' TERM INT; (sleep 0.01 &) ; echo up; while :; do sleep 0.05; done"],
            "t",
        )
        with (
            subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=begin) as process,
            bounded(process, LATE_S),
        ):
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            init = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().strip()
            os.kill(int(init), number)
            assert process.wait(CALL_S) == 7

    def test_kill_9_leaves_nothing(self) -> None:
        argv = command([sys.executable, "-m", "tests.privileged.test_emulation", "hold"], "emulation-test")
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
        process.wait(CALL_S)
        assert process.stdout.read() == ""  # the pipe's other end closes when the last process inside is gone
        process.stdout.close()

    def test_a_second_testbed_runs_beside_the_first(self) -> None:
        argv = command([sys.executable, "-m", "tests.privileged.test_emulation", "hold"], "emulation-test-1")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "up\n"
            reached = inside("reach")
            first.kill()
        assert reached["lost_percent"] == {"inside": 0.0, "across": 0.0}


# ------------------------------------------------------------------ inside


def one_rack(rate_mbps: float | None) -> Topology:
    link = LinkSpec(rate_mbps)
    return Topology("rack", (UnitSpec(1, "gpu", 2, 0),), link, link, OcsSpec(), IncSpec())


def made(topology: Topology) -> FabricNet:
    """A topology's network with hosts and links, which a `with` starts."""
    return FabricNet(FabricTopo(topology), LOGS)


def add_flows(bridge: str, flows: Iterable[str]) -> None:
    argv = ["ovs-ofctl", "-O", "OpenFlow13", "add-flows", bridge, "-"]
    subprocess.run(argv, input="\n".join(flows), text=True, check=True, timeout=LIMIT_S)


def add_local_flows(topology: Topology) -> None:
    for unit in topology.units:
        flows = []
        for host in range(1, unit.hosts + 1):
            match = f"ip,nw_dst={addresses.host_ip(unit.index, host)}"
            change = f"set_field:{addresses.host_mac(unit.index, host)}->eth_dst"
            flows.append(f"priority=100,{match},actions={change},output:{addresses.tor_port_number(host)}")
        add_flows(unit.name, flows)


def add_circuit(a: str, b: str) -> None:
    """Light a circuit, and send what is for the other end's unit over it."""
    ends = [addresses.parse_optical_port(name) for name in (a, b)]
    numbers = [addresses.oxc_port_number(*end) for end in ends]
    add_flows(
        addresses.OXC_BRIDGE,
        [f"in_port={port},actions=output:{other}" for port, other in (numbers, reversed(numbers))],
    )
    for (unit, port), (other, _) in (ends, reversed(ends)):
        match = f"ip,nw_dst={addresses.unit_network(other)}/24"
        add_flows(
            addresses.unit_name(unit),
            [f"priority=50,{match},actions=output:{addresses.optical_number(port)}"],
        )


Start = Callable[[], subprocess.Popen[bytes]]


def transfer(start_receiver: Start, start_sender: Start) -> tuple[dict[str, Any], str]:
    """Return the last words of the receiver and of the sender."""
    with start_receiver() as receiving:
        assert receiving.stdout is not None
        assert receiving.stdout.readline() == b"ready\n"
        with start_sender() as sending:
            said = sending.communicate(timeout=LIMIT_S)[0].decode()
        return json.loads(receiving.communicate(timeout=LIMIT_S)[0]), said


def rate_through_switch() -> Any:
    """Measure TCP from one host to another through Open vSwitch: both wires shape, and every frame is on
    both.
    """
    topology = one_rack(60)
    with made(topology) as fabric:
        add_local_flows(topology)
        for _ in range(TRIES):
            before = processor_times()
            measured = tcp_between_hosts(fabric)
            idle, steal = shares(before, processor_times())
            measured |= {"error": measured["mbps"] / (60 * TCP_PAYLOAD_BYTES / FRAME_BYTES) - 1}
            measured |= {"least_idle_share": min(idle), "steal_share": steal}
            measured |= {"verdict": judged(measured["error"], min(idle), steal)}
            if (
                measured["verdict"] == "holds" or measured["error"] > TOLERANCE
            ):  # no busy machine makes a link too fast
                break
        statistics = fabric.statistics()
    return measured | {"bytes": [statistics["u1h1"].bytes_ab, statistics["u1h2"].bytes_ba]}


def tcp_between_hosts(fabric: FabricNet) -> dict[str, Any]:
    def start(host: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        return fabric.popen_in(host, [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)

    sending = partial(start, "u1h1", SEND_TCP, addresses.host_ip(1, 2), "2", str(LEAST_BYTES))
    return transfer(partial(start, "u1h2", RECEIVE_TCP), sending)[0]


def reach() -> Any:
    topology = ready("default")
    with made(topology) as fabric:
        add_local_flows(topology)
        add_circuit("u1o1", "u2o1")
        lost = {
            "inside": lost_percent(fabric, "u1h1", "u1h2", "u1h3"),
            "across": lost_percent(fabric, "u1h4", "u2h4"),
        }
        unreached = fabric.get("u1h1").cmd("ping -c1 -W0.3", fabric.get("u3h1").IP())
        shells = sum(1 for host in fabric.hosts if host.shell)
    with RouteSocket() as route:
        left = sorted(route.devices())
    _, received = fabric._parsePing(unreached)
    return {"lost_percent": lost, "without_circuit": 100.0 * (1 - received), "shells": shells, "left": left}


def lost_percent(net: Any, *hosts: str) -> float:
    """0 as soon as all reach each other: Open vSwitch may lose the first packet of a flow while it rearranges
    itself.
    """
    deadline = time.monotonic() + LATE_S
    while (
        lost := float(net.ping([net.get(host) for host in hosts], timeout="5"))
    ) and time.monotonic() < deadline:
        pass
    return lost


def unshaped() -> Any:
    topology = one_rack(None)
    with made(topology) as fabric:
        add_local_flows(topology)
        listed = subprocess.run(
            ["ip", "-n", "wires", "-j", "link"], capture_output=True, check=True, timeout=CALL_S
        ).stdout
        measured = tcp_between_hosts(fabric)
        return measured | {"inner_devices": [device["ifname"] for device in json.loads(listed)]}


def read_back() -> Any:
    with made(one_rack(100)), FeatureControl() as control:
        wrong = []
        listing = subprocess.run(
            ["ethtool", "-k", "u1-h1"], capture_output=True, text=True, check=True, timeout=CALL_S
        ).stdout
        for line in listing.splitlines():
            name, _, state = line.strip().partition(": ")
            offload = (
                "segmentation" in name or "checksum" in name or "receive-offload" in name
            ) and "rx-" not in name
            if offload and name != "rx-checksumming" and state.startswith("on"):
                wrong.append(name)
        control.set("u1-h1", {"rx-gro": True})
        feature = error_of(lambda: control.check("u1-h1", {"rx-gro": False}))
        set_offloads("u1-h1", gro=False)
        gro = control.active("u1-h1")["rx-gro"]
    with OpenVSwitch(LOGS) as openvswitch:
        subprocess.run(
            ["ip", "link", "add", "p1", "type", "veth", "peer", "name", "p2"], check=True, timeout=CALL_S
        )
        bridge = Bridge("b", 9, (Port("p1", 7), Port("p2", 7)))
        twice = error_of(lambda: openvswitch.add_bridges([bridge]))
    with RouteSocket() as route:
        route.send([delete_device("p1")])
    return {
        "offloads_wrong": wrong,
        "same_port_twice": re.sub(r"p[12] (.*reads back) .*", r"PORT \1", twice),
        "feature": feature,
        "gro_after_reset": gro,
    }


def error_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (SettingError, TestbedError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def death() -> Any:
    with made(one_rack(100)) as fabric:
        fabric.watch()
        os.kill(fabric.openvswitch.pids()["ovs-vswitchd"], signal.SIGKILL)
        deadline = time.monotonic() + LATE_S
        while (noticed := error_of(fabric.watch)) == "no error" and time.monotonic() < deadline:
            time.sleep(0.01)
        return noticed


def processes() -> Any:
    with made(one_rack(100)) as fabric:
        ids = "os.getuid(), os.getgid(), os.getgroups(), os.stat('/proc/self/ns/net').st_ino"
        program = f"import json, os; print(json.dumps([{ids}]))"
        argv = ["/usr/bin/python3", "-c", program]
        rights: dict[str, Any] = {"uid": NOBODY, "gid": NOBODY, "groups": [NOBODY]}
        with fabric.popen_in("u1h2", argv, stdout=subprocess.PIPE, **rights) as asked:
            *identity, namespace = json.loads(asked.communicate(timeout=LIMIT_S)[0])
        same = os.stat(fabric.host_namespace("u1h2")).st_ino == namespace
        sleeping = fabric.popen_in("u1h1", ["sleep", "600"], **rights)
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{sleeping.pid}/status").read_text().splitlines()
        )
        ignored = int(status["SigIgn"], 16)
    return {
        "ignored": [number.name for number in OF_A_TERMINAL if ignored & 1 << (number - 1)],
        "identity": identity,
        "namespace_is_the_hosts": same,
        "killed_by": sleeping.wait(LIMIT_S),
    }


def hold() -> Any:
    with made(ready("default")):
        print("up", flush=True)
        signal.pause()


SCENARIOS: dict[str, Callable[[], Any]] = {
    "reach": reach,
    "rate_through_switch": rate_through_switch,
    "unshaped": unshaped,
    "read_back": read_back,
    "death": death,
    "processes": processes,
    "hold": hold,
}


if __name__ == "__main__":
    LOGS.mkdir()
    print(json.dumps(SCENARIOS[sys.argv[1]]()))
