"""All-reduce goodput per worker, in the network against gloo's ring, over the same links in the same run; and the error of dark times.

`python -m tests.bench.goodput [--json FILE]`, as root. Goodput is the vector's bits over the time of one all-reduce, the median of
several turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from tests.bench.host import ROOT, facts

MARK = "result: "
SHAPED_MBPS = 200
KINDS = ("inc", "gloo")
CASES = [(workers, rate) for rate in (SHAPED_MBPS, None) for workers in (2, 4)]


def inside(
    workers: int, rate_mbps: float | None, size_bytes: int, turns: int, kinds: Sequence[str] = KINDS
) -> dict[str, Any]:
    """In the namespaces: one rack, both kinds in turn, twice."""
    private_mounts("bench")
    from testbed.network import Network
    from testbed.topology import addresses
    from testbed.topology.load import parse
    from testbed.xdp.engine import Member

    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    topology = parse(
        {"units": [{"hosts": workers}], "host_rate_mbps": rate_mbps or "unshaped", "scale": 1, "buffer_packets": 512},
        "bench",
    )
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with Network(topology, folder) as network:
        members = [Member(worker, 1, worker + 1) for worker in range(workers)]
        for turn in range(2):
            for kind in found:
                admission = network.engine.admit(turn + 1, turn + 1, members)
                processes = []
                for member in members:
                    settings = admission.worker_env(member.worker)
                    settings |= {"kind": kind, "bytes": size_bytes, "turns": turns, "master": addresses.host_ip(1, 1)}
                    argv = [sys.executable, "-m", "tests.bench.allreduce_worker", json.dumps(settings)]
                    processes.append(
                        network.fabric.popen_in(
                            addresses.host_name(1, member.host),
                            argv,
                            cwd=ROOT,
                            stdout=subprocess.PIPE,
                            env={"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/usr/sbin"},
                            pass_fds=admission.worker_fds(member.worker),
                        )
                    )
                outputs = [process.communicate(timeout=300)[0] for process in processes]
                found[kind].append(max(json.loads(output)["seconds"] for output in outputs))
                network.engine.release(turn + 1)
    goodput = {kind: size_bytes * 8 / 1e6 / statistics.median(seconds) for kind, seconds in found.items()}
    return {
        "workers": workers,
        "rate_mbps": rate_mbps,
        "bytes": size_bytes,
        "seconds": found,
        "goodput_mbps": goodput,
        "ratio": goodput["inc"] / goodput["gloo"] if set(kinds) >= set(KINDS) else None,
    }


def dark_times() -> list[dict[str, Any]]:
    """In the namespaces: reconfigurations of the default testbed."""
    private_mounts("bench")
    from testbed.network import Network
    from testbed.topology import catalogue

    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    wirings = [[["u1o1", "u3o1"], ["u2o1", "u4o1"]], [["u1o1", "u2o1"], ["u3o1", "u4o1"]]]
    with Network(catalogue.ready("default"), folder) as network:
        return [network.ask("apply", circuits=wirings[turn % 2]) for turn in range(40)]


def outside(*words: str) -> Any:
    argv = command([sys.executable, "-m", "tests.bench.goodput", *words], "bench")
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or not lines:
        raise SystemExit(f"goodput {' '.join(words)}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    return json.loads(lines[-1].removeprefix(MARK))


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.goodput", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--mbytes", type=float, default=8.0, help="size of the vector")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS), help="what to measure (%(default)s)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside == "dark":
        print(MARK + json.dumps(dark_times()))
        return 0
    if arguments.inside:
        workers, rate = arguments.inside.split(",")
        size = int(arguments.mbytes * 1e6) // 4 * 4
        print(
            MARK
            + json.dumps(
                inside(int(workers), float(rate) if rate else None, size, arguments.turns, arguments.kinds.split(","))
            )
        )
        return 0
    cases = []
    print(f"{'workers':>7} {'link Mb/s':>10} {'inc Mb/s':>9} {'gloo Mb/s':>9} {'inc/gloo':>8}")
    for workers, rate in CASES:
        words = [
            "--inside",
            f"{workers},{rate or ''}",
            "--mbytes",
            str(arguments.mbytes),
            "--turns",
            str(arguments.turns),
        ]
        case = outside(*words)
        cases.append(case)
        goodput = case["goodput_mbps"]
        print(
            f"{workers:>7} {rate or 'unshaped':>10} {goodput['inc']:>9.0f} {goodput['gloo']:>9.0f} {case['ratio']:>8.2f}",
            flush=True,
        )
    events = outside("--inside", "dark")
    errors = sorted(event["measured_ms"] - event["asked_ms"] for event in events)
    print(
        f"dark time: {len(errors)} reconfigurations, measured - asked: median {1000 * statistics.median(errors):.0f} us, "
        f"largest {1000 * errors[-1]:.0f} us"
    )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"host": facts(), "goodput": cases, "dark_time_events": events}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
