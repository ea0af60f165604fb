"""Try the features of the kernel, in namespaces that are made for this and end with it.

`python -m testbed.host_checks.kernel FEATURE...` runs inside them and prints a JSON line each; `findings()`
starts it from outside.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from testbed.client import environment
from testbed.errors import TestbedError
from testbed.host_checks.features import ProbeFailure, ProbeResult, broken
from testbed.host_checks.frames import FRAME, arrives, make_veth, send, tool
from testbed.host_checks.host import UNSHARE, ProbeFault, output_of, said_by_ours
from testbed.interpreters import isolated

ALL_S = 300.0
OVS_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
OVS_READY_S = 15
PRIVATE = Path("/run")  # a private tmpfs is mounted there, so that a killed probe leaves no file


def findings(names: Sequence[str]) -> list[ProbeResult]:
    """Return the results of trying the features `names` (keys of PROBES), all in the same namespaces."""
    try:
        python = environment.interpreter()
    except TestbedError:
        python = Path(sys.executable)
    try:
        argv = isolated("-m", "testbed.host_checks.kernel", *names, path=python)
        said = said_by_ours([*UNSHARE, *argv], ALL_S)
    except ProbeFailure as failure:
        return [ProbeResult(name, False, str(failure)) for name in names]
    except ProbeFault as fault:
        return [broken(name, fault) for name in names]
    return [ProbeResult(**json.loads(line)) for line in said.splitlines()]


def veth() -> str:
    make_veth("veth-a", "veth-b")
    if not arrives(["veth-b"], lambda: send("veth-a", FRAME)):
        raise ProbeFailure("a frame sent into one end did not come out of the other")
    return "a frame went through"


def _tbf_rate() -> int:
    disciplines = json.loads(tool("tc", "-j", "qdisc", "show", "dev", "tbf-a"))
    return next((int(entry["options"]["rate"]) * 8 for entry in disciplines if entry["kind"] == "tbf"), 0)


def tbf() -> str:
    make_veth("tbf-a", "tbf-b")
    tool(
        "tc",
        "qdisc",
        "add",
        "dev",
        "tbf-a",
        "root",
        "tbf",
        "rate",
        "997mbit",
        "burst",
        "64k",
        "latency",
        "20ms",
    )
    if (read := _tbf_rate()) != 997_000_000:
        raise ProbeFailure(f"997 Mb/s were set and {read / 1e6:g} Mb/s read back")
    return "997 Mb/s set and read back"


def mirred() -> str:
    """Join two pairs in the middle, like a shaped link, with each classifier that might work."""
    make_veth("mirred-a", "mirred-b")
    make_veth("mirred-c", "mirred-d")
    tool("tc", "qdisc", "add", "dev", "mirred-b", "ingress")
    action = ["action", "mirred", "egress", "redirect", "dev", "mirred-c"]
    works: list[str] = []
    lacking: list[str] = []
    for classifier in (["u32", "match", "u32", "0", "0"], ["matchall"]):
        rule = ["dev", "mirred-b", "parent", "ffff:", "protocol", "all", "prio", "1"]
        try:
            tool("tc", "filter", "add", *rule, *classifier, *action)
        except ProbeFailure:
            lacking.append(classifier[0])
            continue
        reached = arrives(["mirred-d"], lambda: send("mirred-a", FRAME))
        (works if reached else lacking).append(classifier[0])
        tool("tc", "filter", "del", "dev", "mirred-b", "parent", "ffff:")
    if "u32" not in works:
        raise ProbeFailure(f"no frame was redirected by {' nor '.join(lacking)}")
    return (
        "a frame was redirected by " + " and by ".join(works) + (f"; not by {lacking[0]}" if lacking else "")
    )


@functools.cache
def _xdp() -> dict[str, tuple[bool, str]]:
    # in a process of its own: only testbed/dataplanes/xdp may import bcc, which prints the compiler's
    # messages
    outcomes: dict[str, tuple[bool, str]] = json.loads(
        said_by_ours(isolated("-m", "testbed.dataplanes.xdp.probe"))
    )
    return outcomes


def _one_of(outcomes: dict[str, tuple[bool, str]], name: str, first: str) -> str:
    works, detail = outcomes.get(name) or (False, f"not tried, {first} did not work")
    if not works:
        raise ProbeFailure(detail)
    return detail


def _links_feature(name: str) -> str:
    # in a process of its own, as for XDP
    return said_by_ours(isolated("-m", "testbed.emulation.probe", name))


@functools.cache
def _programs() -> dict[str, tuple[bool, str]]:
    # in a process of its own, as for XDP
    said = said_by_ours(isolated("-m", "testbed.emulation.probe", "programs"), ALL_S)
    outcomes: dict[str, tuple[bool, str]] = json.loads(said)
    return outcomes


@contextlib.contextmanager
def _open_vswitch() -> Iterator[tuple[str, ...]]:
    """Start a private Open vSwitch; yield the start of an ovs-vsctl command for it. Ends its processes on
    leaving.
    """
    with tempfile.TemporaryDirectory(dir=PRIVATE) as folder, contextlib.ExitStack() as stack:
        database, log = Path(folder) / "conf.db", Path(folder) / "log"
        socket = f"unix:{folder}/db.sock"
        tool("ovsdb-tool", "create", str(database), str(OVS_SCHEMA))
        folders = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"), folder)
        environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **folders}
        for argv in (
            ["ovsdb-server", str(database), f"--remote=p{socket}", f"--unixctl={folder}/db.ctl"],
            ["ovs-vswitchd", socket, f"--unixctl={folder}/switch.ctl"],
        ):
            sink = stack.enter_context(log.open("ab"))
            process = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            _wait_for(Path(folder) / ("db.sock" if argv[0] == "ovsdb-server" else "switch.ctl"), process, log)
        yield ("ovs-vsctl", f"--db={socket}", f"--timeout={OVS_READY_S}")


def _wait_for(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + OVS_READY_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            said = (log.read_text(errors="replace").strip() or "nothing").splitlines()[-1]
            raise ProbeFailure(f"Open vSwitch made no {path.name}; it said: {said}")
        time.sleep(0.02)


def _bridged(datapath: str) -> str:
    make_veth(f"{datapath}-a", f"{datapath}-a2")
    make_veth(f"{datapath}-b", f"{datapath}-b2")
    with _open_vswitch() as vsctl:
        settings = [f"datapath_type={datapath}", "fail_mode=standalone"]
        tool(*vsctl, "add-br", "probe", "--", "set", "bridge", "probe", *settings)
        for port in (f"{datapath}-a2", f"{datapath}-b2"):
            tool(*vsctl, "add-port", "probe", port)
        ports = [
            tool(*vsctl, "get", "interface", f"{datapath}-{end}", "ofport").strip() for end in ("a2", "b2")
        ]
        if not all(port.isdigit() for port in ports):
            raise ProbeFailure(f"a bridge of datapath type {datapath} takes no ports")
        if not arrives([f"{datapath}-b"], lambda: send(f"{datapath}-a", FRAME)):
            raise ProbeFailure("a frame did not cross the bridge")
        version = tool(*vsctl, "--version").splitlines()[0].split()[-1]
    return f"a frame crossed a bridge of version {version}"


def netem() -> str:
    make_veth("netem-a", "netem-b")
    shaper = ("tbf", "rate", "100mbit", "burst", "32kb", "limit", "100kb")
    tool("tc", "qdisc", "add", "dev", "netem-a", "root", "handle", "1:", *shaper)
    tool("tc", "qdisc", "add", "dev", "netem-a", "parent", "1:1", "netem", "delay", "1ms", "0.5ms")
    return "a token bucket delays"


def bmv2() -> str:
    # in a process of its own, as for XDP: only testbed/dataplanes/bmv2 may import the Thrift client
    version = output_of(["simple_switch", "--version"])
    return f"{version}: {said_by_ours(isolated('-m', 'testbed.dataplanes.bmv2.probe'))}"


PROBES: dict[str, Callable[[], str]] = {
    "veth": veth,
    "tbf": tbf,
    "mirred": mirred,
    "xdp": lambda: _one_of(_xdp(), "xdp", "XDP"),
    "marks": lambda: _links_feature("marks"),
    "bursts": lambda: _links_feature("bursts"),
    "programs": lambda: _one_of(_programs(), "programs", "the programs"),
    "ticks": lambda: _one_of(_programs(), "ticks", "the programs"),
    "mmap": lambda: _one_of(_xdp(), "mmap", "XDP"),
    "broadcast": lambda: _one_of(_xdp(), "broadcast", "XDP"),
    "jumbo": lambda: _one_of(_xdp(), "jumbo", "XDP"),
    "ovs": lambda: _bridged("netdev"),
    "ovs-kernel": lambda: _bridged("system"),
    "netem": netem,
    "bmv2": bmv2,
}


def main(names: Sequence[str]) -> int:
    tool("mount", "-t", "tmpfs", "optinc-doctor", str(PRIVATE))
    for name in names:
        try:
            finding = ProbeResult(name, True, PROBES[name]())
        except ProbeFailure as failure:
            finding = ProbeResult(name, False, str(failure))
        except Exception as error:  # our own defect, which must not be reported as a lack of the host
            finding = broken(name, error)
        print(json.dumps(asdict(finding)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
