"""The steps that are tried on a kernel machine: `python -m tests.kernels.form`; --long runs all of them.

Each step prints a line when it is over. The first that fails ends the form, with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testbed.dataplanes.xdp.program import Programs
from testbed.emulation.openvswitch import RUN_DIR, Bridge, OpenVSwitch
from testbed.host_checks import kernel
from testbed.host_checks.features import BY_NAME
from testbed.host_checks.required_kernel import NEEDED, remember
from testbed.plugins.registry import sources
from testbed.wire.spec import ONE_BUFFER_MTU, lanes_for
from tests.limits import SLOWER_VARIABLE
from tests.privileged.packets import findings

MTUS = (1500, ONE_BUFFER_MTU, 9000)  # native and generic mode, and each compiled number of lanes
FEATURES = (*NEEDED, "ovs", "bursts", "jumbo")
STEP_S = 1800.0
TIMES_SLOWER = 10  # slower than a real machine; tests' limits are multiplied by it
TESTBED = (sys.executable, "-m", "testbed")
SUMS = "tests/kernels/sums.py"
CONFIGURATION = {
    "units": [{"hosts": 3, "optical_ports": 1}, {"hosts": 2, "optical_ports": 1}],
    "host_rate_mbps": 40_000,
    "optical_rate_mbps": 40_000,
    "scale": 200,
}
TESTS = {
    "each system": ("test_own_traffic.py",),
    "circuits": (
        "test_network.py::test_a_reconfiguration_darkens_what_it_changes_and_nothing_else",
        "test_network.py::test_sums_are_exact_while_the_circuits_under_a_job_change",
    ),
    "worlds in step": ("test_model.py",),
    "places and links": (
        "test_places.py",
        "test_links.py::TestQueues::test_a_buffer_holds_the_frames_asked_for_in_both_directions",
        "test_links.py::TestQueues::test_every_frame_arrives_or_is_counted_as_dropped",
    ),
}
"""The tests of the long form, by step, below tests/privileged; those of the first step are torch's jobs. The
speed of links is not tested there: an emulated processor is too slow for it.
"""
# the folder of testbeds' names, empty before anything is brought up
NAMES = "/run/optinc"


class StepError(Exception):
    """A step failed to show what it must."""


def features() -> str:
    tried = kernel.findings(FEATURES)
    for each in tried:
        print(f"    {each.name:<12}{'works' if each.works else 'lacks':<7}{each.detail}", flush=True)
    lacks = [each.name for each in tried if BY_NAME[each.name].required and not each.works]
    if lacks:
        raise StepError(f"lacking: {', '.join(lacks)}")
    remember()  # so that `up` does not probe again
    return f"{sum(each.works for each in tried)} of {len(tried)} features work"


def programs(mtus: tuple[int, ...]) -> str:
    for mtu in mtus:
        with Programs(sources("xdp"), lanes_for(mtu)) as loaded:
            print(
                f"    MTU {mtu}: {len(loaded.compiled.functions)} programs load ({loaded.mode})", flush=True
            )
    return f"every program loads at MTU {', '.join(map(str, mtus))}"


def vectors() -> str:
    differences = {name: lines for name, lines in findings("vector_run", timeout_s=STEP_S).items() if lines}
    if differences:
        name, lines = next(iter(differences.items()))
        raise StepError(f"{len(differences)} vectors differ; {name}: {lines[0]}")
    return "all packet vectors on XDP"


def testbed(*words: str) -> str:
    """Run a command of the project and return its output. StepError with its last lines where it fails."""
    done = subprocess.run([*TESTBED, *words], capture_output=True, text=True, check=False, timeout=STEP_S)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise StepError(f"testbed {' '.join(words)}: exit code {done.returncode}: {' / '.join(lines[-4:])}")
    return done.stdout


def job(*words: str) -> str:
    lines = testbed("run", "--no-record", *words).splitlines()
    (said,) = [line.partition("] ")[2] for line in lines if line.startswith("[u1h1]")]
    return said


@contextmanager
def up() -> Iterator[None]:
    file = Path("/tmp/kernels.yaml")
    file.write_text(json.dumps(CONFIGURATION))
    testbed("up", "--detach", "--config", str(file))
    try:
        yield
    finally:
        testbed("down")


def jobs(is_long: bool) -> list[tuple[str, Callable[[], str]]]:
    """Return the jobs for a testbed of two racks, none of which needs torch."""

    def with_fault(*fault: str) -> str:
        testbed("fault", "set", "u1", *fault)
        said = job("--place", "u1:3", "--sync", "inc", SUMS)
        testbed("fault", "clear")
        if said.endswith(" 0 again"):
            raise StepError(f"nothing was lost: {said}")
        return said

    short = [
        ("a sum in the network", lambda: job("--place", "u1:3", "--sync", "inc", SUMS)),
        ("across racks", lambda: job("--place", "u1:2,u2:2", "--sync", "inc", SUMS)),
        ("with 1 % lost", lambda: with_fault("--loss", "1%")),
        (
            "a late worker (Trio-ML)",
            lambda: job("--place", "u1:3", "--sync", "trio", "--age-out", "100", SUMS, "late"),
        ),
    ]
    more = [
        ("with 1 % corrupted", lambda: with_fault("--corrupt", "1%")),
        ("by ALEPH", lambda: job("--place", "u1:3", "--sync", "aleph", SUMS)),
    ]
    return [*short, *(more if is_long else [])]


def nothing_left() -> str:
    links = subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    devices = [line.split(": ")[1] for line in links.splitlines()]
    names = [path.name for path in Path(NAMES).iterdir()] if Path(NAMES).exists() else []
    left = [each for each in devices if each != "lo" and not each.startswith(("sit", "ovs-"))] + names
    if left:
        raise StepError(f"left behind: {', '.join(left)}")
    return "no device and no testbed is left"


def own_switch() -> str:
    """Bring a bridge up in this process, as FabricNet does, and end it."""
    RUN_DIR.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as logs, OpenVSwitch(Path(logs)) as openvswitch:
        openvswitch.add_bridges([Bridge("form", 1, ())])
        datapath = openvswitch.datapath
    nothing_left()
    if datapath != "system":
        raise StepError(f"the datapath is {datapath}, and Debian's kernels have their own")
    return "a bridge of this process's, by the kernel's datapath, has come and gone"


def pytest(*tests: str) -> str:
    options = ("-q", "-x", "-o", f"faulthandler_timeout={4 * STEP_S:g}")
    argv = [sys.executable, "-m", "pytest", *options, *(f"tests/privileged/{each}" for each in tests)]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * STEP_S,
        env={**os.environ, SLOWER_VARIABLE: str(TIMES_SLOWER)},
    )
    if done.returncode:
        raise StepError(" / ".join(done.stdout.strip().splitlines()[-6:]))
    return done.stdout.strip().splitlines()[-1]


def step(name: str, work: Callable[[], str]) -> None:
    began = time.monotonic()
    said = work()
    print(f"{name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.form")
    parser.add_argument("--long", action="store_true")
    is_long = parser.parse_args().long
    try:
        step("features", features)
        # the programs for the usual MTU are loaded when a testbed comes up
        step("programs", lambda: programs(MTUS if is_long else MTUS[-1:]))
        if is_long:
            step("vectors", vectors)
        began = time.monotonic()
        with up():
            print(f"up: two racks joined by a circuit ({time.monotonic() - began:.0f} s)", flush=True)
            for name, work in jobs(is_long):
                step(name, work)
        step("down", nothing_left)
        step("own switch", own_switch)
        if is_long:
            print(testbed("doctor"), flush=True)
            for name, words in TESTS.items():
                step(name, partial(pytest, *words))
            step("demo", lambda: testbed("demo").strip().splitlines()[-1])
    except (StepError, AssertionError, subprocess.TimeoutExpired) as error:
        print(f"FAILED: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
