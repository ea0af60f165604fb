"""The controller process on each of its libraries, against a real Open vSwitch, in namespaces of the test's
own, with flows alone (no fast path).

This file is two things: the test, and the scenario that it runs inside the namespaces:
`python -m tests.privileged.test_controller FOLDER LIBRARY`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.environment import controller_interpreter
from testbed.errors import RequestError, TestbedError
from testbed.topology import addresses
from testbed.topology.load import parse
from testbed.topology.model import Topology
from tests.conftest import Require
from tests.limits import CALL_S

ROOT = Path(__file__).resolve().parents[2]
PORT = 6653
DARK_MS = 43
LIMIT_S = 480
LATE_S = 60.0


@pytest.mark.needs("namespaces", "ovs")
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("library", ["os-ken", "ryu"])
def test_the_controller_and_a_real_open_vswitch(tmp_path: Path, library: str, require: Require) -> None:
    require(library)
    namespaces = ["--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    scenario = [sys.executable, "-m", "tests.privileged.test_controller", str(tmp_path), library]
    done = subprocess.run(
        ["unshare", *namespaces, *scenario],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    log = tmp_path / "controller.log"
    said = log.read_text()[-4000:] if log.exists() else "none"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\ncontroller's log:\n{said}"
    assert done.stdout.splitlines()[-1] == "all held"


# ---- inside the namespaces ----


def scenario(folder: Path, library: str) -> None:
    """Every check in one bring-up: starting Open vSwitch four times would take longer than what it tests."""
    raw = {"units": [{"kind": "gpu", "hosts": 1}] * 4, "ocs": {"switch_ms": DARK_MS - 3, "lock_ms": 3}}
    topology = parse(raw, "scenario")
    with contextlib.ExitStack() as stack:
        _wire(topology)
        _open_vswitch(topology, folder, stack)
        controller = Controller(topology, folder, library)
        stack.callback(controller.end)
        controller.start()
        assert controller.ask("library").split()[0] == library
        _takes_many_switches_at_once()
        _circuits_carry(controller)
        _a_reconfiguration_leaves_the_others_alone(controller)
        _a_wrong_request_changes_nothing(controller)
        _what_another_did_to_flows_is_seen_at_the_next_change(controller)
        _a_dead_controller_leaves_traffic_alone(controller)
        _a_lost_switch_is_noticed(controller)
        _a_restarted_switch_gets_its_flows_back(controller)
        _a_term_signal_ends_it(controller)
    print("all held")


def _takes_many_switches_at_once() -> None:
    """Switches beyond the listener's queue would try again a second later: a large fabric is up that late."""
    listener = ["ss", "--no-header", "--listening", "--tcp", "--numeric", f"sport = :{PORT}"]
    said = subprocess.run(listener, capture_output=True, text=True, check=True, timeout=CALL_S).stdout
    _state, _waiting, backlog, *_ = said.split()
    assert int(backlog) >= 512, said


def _circuits_carry(controller: Controller) -> None:
    circuits = {tuple(c) for c in controller.ask("circuits")["circuits"]}
    assert circuits == {("u1o1", "u2o1"), ("u2o2", "u3o1"), ("u3o2", "u4o1"), ("u1o2", "u4o2")}, circuits
    assert _pairs(_flows("oxc")) == {pair for a, b in circuits for pair in (_numbers(a, b), _numbers(b, a))}
    for source, target in ((1, 2), (1, 3), (1, 4), (2, 4)):
        _reach(source, target)


def _a_reconfiguration_leaves_the_others_alone(controller: Controller) -> None:
    before = _flows("oxc")
    asked_at = time.monotonic()
    with _ping(3, 4) as lost:  # over u3o2-u4o1, which the demands keep
        event = controller.ask("request", demands=[["u1", "u3"], ["u3", "u4"]])
    assert lost() == 0, "a circuit that stays lost packets"
    assert ["u1o1", "u2o1"] in event["removed"] or ["u1o2", "u4o2"] in event["removed"], event
    assert event["asked_ms"] == DARK_MS
    # the lower edge is exact, as the flows come only after it; the upper one allows for a busy machine
    assert DARK_MS <= event["measured_ms"] < DARK_MS + 1000, event
    affected = {addresses.oxc_port_number(*addresses.parse_optical_port(port)) for port in event["ports"]}
    after = _flows("oxc")
    passed_s = time.monotonic() - asked_at
    stayed = {key for key in before if key[0] not in affected}
    assert stayed, "some circuits stay"
    for key in stayed:
        assert after[key].age_s >= before[key].age_s, f"flow {key} was written again"
        assert after[key].packets >= before[key].packets, f"flow {key} was written again"
    for key in after.keys() - stayed:
        assert after[key].age_s <= passed_s + 1, f"flow {key} was expected to be new"
    _reach(1, 3)
    assert controller.ask("history") == [event]


def _a_wrong_request_changes_nothing(controller: Controller) -> None:
    before = controller.ask("circuits")
    for op, arguments in (
        ("request", {"demands": [["u1", "u2"], ["u1", "u3"], ["u1", "u4"]]}),
        ("request", {"demands": [["u1", "u9"]]}),
        ("apply", {"circuits": [["u1o1", "u1o1"]]}),
        ("apply", {"circuits": [["u1o1", "u2o7"]]}),
        ("tree", {"root": "u9", "members": ["u1"]}),
        ("tree", {"root": "u1", "members": "u2"}),
        ("nonsense", {}),
    ):
        try:
            answer = controller.ask(op, **arguments)
        except RequestError:
            continue
        raise AssertionError(f"{op} {arguments} was answered {answer}")
    assert controller.ask("circuits") == before


def _what_another_did_to_flows_is_seen_at_the_next_change(controller: Controller) -> None:
    """A switch shows, of what it holds, what the change added, and how much there is: a flow that stays and
    is gone, or one too many, has all of them read.
    """
    circuits = controller.ask("circuits")["circuits"]
    (*rest, moved), stays = sorted(circuits), sorted(circuits)[0]
    a, b = _numbers(*stays)
    _run("ovs-ofctl", "-O", "OpenFlow13", "--strict", "del-flows", "oxc", f"priority=100,in_port={a}")
    controller.ask("apply", circuits=rest)
    assert (a, b) in _pairs(_flows("oxc"))
    _run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "oxc", "cookie=0xf71,priority=7,in_port=9,actions=drop")
    controller.ask("apply", circuits=circuits)
    assert _pairs(_flows("oxc")) == {pair for c in circuits for pair in (_numbers(*c), _numbers(*c)[::-1])}
    assert moved in controller.ask("circuits")["circuits"]


def _a_dead_controller_leaves_traffic_alone(controller: Controller) -> None:
    before = {bridge: _flows(bridge) for bridge in BRIDGES}
    circuits, history = controller.ask("circuits"), controller.ask("history")
    with _ping(1, 3) as lost:
        began = time.monotonic()
        controller.kill()
        (controller.history).open("a").write(
            '{"id": 2, "half'
        )  # as a process leaves it that dies while it writes
        controller.start()
        passed_s = time.monotonic() - began
    assert lost() == 0, "traffic was cut when the controller died or came back"
    assert controller.ask("circuits") == circuits
    assert controller.ask("history") == history
    for bridge, flows in before.items():
        after = _flows(bridge)
        assert after.keys() == flows.keys(), bridge
        for key, flow in flows.items():
            assert after[key].age_s >= flow.age_s + passed_s - 0.1, f"{bridge}: {key} was written again"
            assert after[key].packets >= flow.packets, f"{bridge}: {key} was written again"
    event = controller.ask("apply", circuits=[["u1o1", "u2o1"], ["u2o2", "u3o1"], ["u3o2", "u4o1"]])
    controller.kill()
    controller.start()
    assert controller.ask("history") == [*history, event], "what comes after a half line is kept"


def _a_lost_switch_is_noticed(controller: Controller) -> None:
    _run("ovs-vsctl", "del-controller", "u2")
    _until("the controller notices that u2 is gone", lambda: not controller.ask("ready"))
    _run("ovs-vsctl", "set-controller", "u2", f"tcp:127.0.0.1:{PORT}")
    _until("u2 is back", lambda: bool(controller.ask("ready")))


def _a_restarted_switch_gets_its_flows_back(controller: Controller) -> None:
    before = _flows("oxc").keys()
    _run("ovs-vsctl", "del-controller", "oxc")
    _run("ovs-ofctl", "-O", "OpenFlow13", "del-flows", "oxc")
    _until("the controller notices that the OXC is gone", lambda: not controller.ask("ready"))
    _run("ovs-vsctl", "set-controller", "oxc", f"tcp:127.0.0.1:{PORT}")
    _until("the OXC is back", lambda: bool(controller.ask("ready")))
    assert _flows("oxc").keys() == before


def _a_term_signal_ends_it(controller: Controller) -> None:
    assert controller.terminate() == 0
    assert not controller.socket.exists()


class Controller:
    """The process under test."""

    def __init__(self, topology: Topology, folder: Path, library: str) -> None:
        self._folder = folder
        self._command = [str(controller_interpreter(library)), "-m", "controller", "--library", library]
        self.socket, self.history = folder / "controller.sock", folder / "history.jsonl"
        (folder / "topology.json").write_text(topology.to_json())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--topology", str(self._folder / "topology.json"), "--socket", str(self.socket)]
        arguments += ["--history", str(self.history), "--listen-port", str(PORT)]
        with (self._folder / "controller.log").open("ab") as log:
            self._process = subprocess.Popen([*self._command, *arguments], cwd=ROOT, stdout=log, stderr=log)
        process = self._process
        _until("the controller is ready", lambda: bool(self.ask("ready")), lambda: process.poll() is None)

    def ask(self, op: str, **arguments: Any) -> Any:
        return rpc.call(self.socket, op, timeout_s=LATE_S, **arguments)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(CALL_S)

    def terminate(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(LATE_S)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


BRIDGES = ("u1", "u2", "u3", "u4", "oxc")
_ANSWER = re.compile(r"^\[([0-9.]+)\].* icmp_seq=([0-9]+) .*time=([0-9.]+) ms")
_AGE = re.compile(r"duration=([0-9.]+)s.* n_packets=([0-9]+)")


class Held:
    """The age and the packets of one flow, as a switch says."""

    def __init__(self, line: str) -> None:
        match = _AGE.search(line)
        assert match, line
        self.age_s, self.packets = float(match[1]), int(match[2])


def _flows(bridge: str) -> dict[tuple[object, str, str], Held]:
    """A bridge's flows by (in port or None, match, actions), as Open vSwitch's own tool lists them."""
    flows: dict[tuple[object, str, str], Held] = {}
    for line in _run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge).splitlines():
        if "actions=" not in line:
            continue
        match, _, actions = line.split("priority=", 1)[1].partition(" actions=")
        port = re.search(r"in_port=\"?([^,\" ]+)", match)
        flows[_port_number(port[1]) if port else None, match, actions] = Held(line)
    return flows


def _port_number(name: str) -> int:
    """The OpenFlow number of an OXC port that the tool shows by its number or by its device."""
    return (
        int(name) if name.isdecimal() else addresses.oxc_port_number(*addresses.parse_optical_port(name[2:]))
    )


def _pairs(flows: dict[tuple[object, str, str], Held]) -> set[tuple[object, int]]:
    return {(port, _port_number(actions.split(":")[1].strip('"'))) for port, _, actions in flows}


def _numbers(a: str, b: str) -> tuple[int, int]:
    first, second = (addresses.oxc_port_number(*addresses.parse_optical_port(port)) for port in (a, b))
    return first, second


def _reach(source: int, target: int) -> None:
    """Waits until the first hosts of two units reach each other.

    The user-space datapath drops a packet that needs a look-up while Open vSwitch rearranges itself
    (dpif-netdev tries its upcall lock and does not wait for it), so that the first packet of a flow may be
    lost; later ones are not.
    """
    once = [
        "ip",
        "netns",
        "exec",
        addresses.host_name(source, 1),
        "ping",
        "-c",
        "1",
        "-W",
        "1",
        addresses.host_ip(target, 1),
    ]

    def answered() -> bool:
        return subprocess.run(once, stdout=subprocess.DEVNULL, timeout=10, check=False).returncode == 0

    _until(f"u{source}h1 reaches u{target}h1", answered)


@contextlib.contextmanager
def _ping(source: int, target: int) -> Iterator[Callable[[], int]]:
    """Pings until one that was sent after the block is answered, and then says how many before the last
    answer were lost.
    """
    _reach(source, target)
    command = ["ip", "netns", "exec", addresses.host_name(source, 1), "ping", "-D", "-n", "-i", "0.01"]
    ping = subprocess.Popen([*command, addresses.host_ip(target, 1)], stdout=subprocess.PIPE, text=True)
    numbers: list[int] = []
    times = [0.0]  # when the last one that was answered was sent

    def hear() -> None:
        assert ping.stdout is not None
        for line in ping.stdout:
            if answer := _ANSWER.search(line):
                times.append(float(answer[1]) - float(answer[3]) / 1000)
                numbers.append(int(answer[2]))

    hearing = threading.Thread(target=hear)
    hearing.start()
    try:
        _until("the first answer", lambda: bool(numbers))
        yield lambda: max(numbers) - min(numbers) + 1 - len(set(numbers))
        ended = time.time()
        _until("an answer to what was sent after it", lambda: times[-1] > ended)
    finally:
        ping.send_signal(signal.SIGINT)
        ping.wait(LATE_S)
        hearing.join()


def _wire(topology: Topology) -> None:
    """Hosts in namespaces and veth pairs, without shaping; addresses and neighbours as the daemon sets
    them.
    """
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    _run("ip", "link", "set", "lo", "up")
    for unit in topology.units:
        i, host = unit.index, addresses.host_name(unit.index, 1)
        device = addresses.tor_port_device(i, 1)
        _run("ip", "netns", "add", host)
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", host)
        _run("ip", "-n", host, "link", "set", "eth0", "address", addresses.host_mac(i, 1), "up")
        _run("ip", "-n", host, "addr", "add", f"{addresses.host_ip(i, 1)}/24", "dev", "eth0")
        _run(
            "ip",
            "-n",
            host,
            "neigh",
            "add",
            addresses.tor_ip(i),
            "lladdr",
            addresses.tor_mac(i),
            "dev",
            "eth0",
        )
        _run("ip", "-n", host, "route", "add", "default", "via", addresses.tor_ip(i))
        _run("ip", "link", "set", device, "up")
        for port in range(1, unit.optical_ports + 1):
            near, far = addresses.optical_device(i, port), addresses.oxc_device(i, port)
            _run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            _run("ip", "link", "set", near, "up")
            _run("ip", "link", "set", far, "up")


def _open_vswitch(topology: Topology, folder: Path, stack: contextlib.ExitStack) -> None:
    """A private Open vSwitch with every bridge, the controller set and nobody there yet."""
    Path("/run/openvswitch").mkdir()
    database = "/run/openvswitch/conf.db"
    _run("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
    quiet = ["-vconsole:off", "-vsyslog:off"]
    for name, *arguments in (
        ("ovsdb-server", database, "--remote=punix:/run/openvswitch/db.sock"),
        ("ovs-vswitchd", "unix:/run/openvswitch/db.sock"),
    ):
        process = subprocess.Popen([name, *arguments, *quiet, f"--log-file={folder / name}.log"])
        stack.callback(process.wait)
        stack.callback(process.terminate)
        _until(f"{name} answers", lambda: Path("/run/openvswitch/db.sock").exists())
    _run("ovs-vsctl", "--no-wait", "init")
    change: list[str] = []

    def bridge(name: str, dpid: int, ports: dict[str, int]) -> None:
        change.extend(
            ["--", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev", "fail_mode=secure"]
        )
        change.extend(["protocols=OpenFlow13", f"other_config:datapath-id={dpid:016x}"])
        change.extend(["other_config:disable-in-band=true"])
        for device, number in ports.items():
            change.extend(["--", "add-port", name, device])
            change.extend(["--", "set", "Interface", device, f"ofport_request={number}"])
        change.extend(["--", "set-controller", name, f"tcp:127.0.0.1:{PORT}"])
        change.extend(["--", "set", "Controller", name, "max_backoff=1000"])

    optics: dict[str, int] = {}
    for unit in topology.units:
        i, numbers = unit.index, range(1, unit.optical_ports + 1)
        ports = {addresses.tor_port_device(i, 1): addresses.tor_port_number(1)}
        ports |= {addresses.optical_device(i, p): addresses.optical_number(p) for p in numbers}
        optics |= {addresses.oxc_device(i, p): addresses.oxc_port_number(i, p) for p in numbers}
        bridge(addresses.unit_name(i), addresses.tor_dpid(i), ports)
    bridge(addresses.OXC_BRIDGE, addresses.OXC_DPID, optics)
    _run("ovs-vsctl", *change)


def _until(what: str, holds: Callable[[], bool], possible: Callable[[], bool] = lambda: True) -> None:
    """Waits for a condition; an error while it is asked for counts as not yet."""
    deadline, said = time.monotonic() + LATE_S, "it did not hold"
    while True:
        try:
            if holds():
                return
        except TestbedError as error:
            said = str(error)
        assert possible(), f"waited for: {what}; the process ended"
        assert time.monotonic() < deadline, f"waited {LATE_S:g} s for: {what}; {said}"
        time.sleep(0.02)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LATE_S, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"
    return done.stdout


if __name__ == "__main__":
    assert os.getpid() == 1, "this scenario mounts over /run: it runs in namespaces of its own only"
    assert shutil.which("ovs-vswitchd"), "openvswitch-switch is not installed"
    scenario(Path(sys.argv[1]), sys.argv[2])
