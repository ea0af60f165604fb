"""Jobs with an optimizer node, measured: how much computing the NIC costs by where it runs, which
retransmission time is right at which loss, and the cost of faults.

`python -m tests.bench.luwu_jobs nic|detect|faults [--pairs 3] [--json FILE]`, as root. Variants take turns on
one testbed. The only assertion is that parameters are equal to the bit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testbed.report.measures import covered_s
from tests.bench.host import ROOT, facts
from tests.privileged.commands import Testbed, command, open_folder, pid_of, pids_in_testbed, running, start

SCRIPT = str(ROOT / "workloads" / "luwu" / "jobs" / "text.py")
WORKERS = 2
CONFIG = """
units: [{hosts: 2}, {kind: optimizer, hosts: 1}]
ocs: {circuits: [[u1o1, u2o1]]}
host_rate_mbps: 200
optical_rate_mbps: 200
scale: 1
"""
LINKS = ("u1h1", "u1h2", "u2h1")
MODEL = ("--layers", "4", "--width", "96", "--length", "64", "--batch", "8")
STEPS = 16
LOSSES = ("0%", "1%", "0.1%")
DETECTS_MS = (5.0, 20.0, 100.0)


class Bench:
    """A testbed, and a folder for states and records."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed, self.folder = testbed, folder
        self._jobs = 0
        self.numbers: set[str] = set()

    def words(self, states: Path, *more: str, steps: int = STEPS) -> list[str]:
        states.mkdir(exist_ok=True)
        options = ["--name", self.testbed.name, "--sync", "luwu", "--timeout", "200"]
        return [*options, SCRIPT, "--states", str(states), "--steps", str(steps), *MODEL, *more]

    def states(self) -> Path:
        self._jobs += 1
        return self.folder / f"states{self._jobs}"

    def job(self, *more: str, states: Path | None = None, steps: int = STEPS) -> dict[str, Any]:
        """Run a job, and return the seconds of an iteration and what its NICs did."""
        states = states or self.states()
        result, picture = self.folder / "result.json", self.folder / "record.png"
        words = self.words(states, "--gantt", str(picture), *more, steps=steps)
        ended = command("testbed.run", "--json", str(result), *words, timeout_s=250)
        if ended.returncode:
            raise SystemExit(f"{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        self.numbers |= set(re.findall(r"parameters ([0-9a-f]{16})$", ended.stdout, re.MULTILINE))
        lines = re.findall(rf"iteration {STEPS}: .* (\d+) tokens/s, (\d+)% waiting", ended.stdout)
        iteration_s = statistics.median(WORKERS * 8 * 64 / int(rate) for rate, _ in lines)
        waiting = statistics.median(int(share) / 100 for _, share in lines)
        nics = [worker["stats"]["nic"] for worker in json.loads(result.read_text())["workers"]]
        spans = json.loads(picture.with_suffix(".json").read_text())
        network = [
            (span["start_ns"] / 1e9, span["end_ns"] / 1e9, span["size_bytes"])
            for span in spans
            if span["place"] in ("push", "accept gradients")
        ]
        given = [nic["given"] for nic in nics]
        return {
            "iteration_s": iteration_s,
            "waiting": waiting,
            "computing_s": iteration_s * (1 - waiting),
            "network_s": covered_s(network) / steps,
            "nic_s": statistics.median(nic["busy_ns"] for nic in nics) / 1e9 / steps,
            "again": sum(each["again"] for each in given) / max(1, sum(each["packets"] for each in given)),
            "gone_back": sum(each["gone_back"] for each in given),
            "lost_for_room": sum(nic["dropped"] + nic["gotten"]["overflowed"] for nic in nics),
        }

    def fault(self, *words: str) -> None:
        ended = command("testbed.fault", words[0], "--name", self.testbed.name, *words[1:])
        assert ended.returncode == 0, ended.stderr

    def broken(self, act: Callable[[], None], states: Path, steps: int = 1000) -> tuple[str, float, int, int]:
        """Run a job, and call `act` beside it after iteration 3. Return the job's output; the seconds from
        then until its end, or, where it continued, its longest time without an iteration; the last iteration
        that it reported; its exit code.
        """
        argv = self.words(states, steps=steps)
        with start("testbed.run", *argv, together=True) as job:
            assert job.stdout is not None
            said: list[str] = []
            times: list[float] = []
            acting = threading.Thread(target=act)
            for line in job.stdout:
                said.append(line)
                if re.search(r"iteration \d+:", line):
                    if not times and "iteration 3:" in line:
                        acting.start()
                    if times or "iteration 3:" in line:
                        times.append(time.monotonic())
            code = job.wait(timeout=120)
            ended_s = time.monotonic() - times[0]
        acting.join()
        text = "".join(said)
        self.numbers |= set(re.findall(r"parameters ([0-9a-f]{16})$", text, re.MULTILINE))
        last = max(int(number) for number in re.findall(r"iteration (\d+):", text))
        longest_s = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
        return text, (ended_s if code else longest_s), last, code


def nic(bench: Bench, pairs: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {"process": [], "host": []}
    for pair in range(pairs):
        for place in list(runs)[:: -1 if pair % 2 else 1]:
            runs[place].append(bench.job("--nic", place))
    print("| NIC | iteration, s | computing | waiting | network busy | of it overlapped | NIC's processor |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for place, each in runs.items():
        mid = {name: statistics.median(run[name] for run in each) for name in each[0]}
        hidden = max(0.0, 1 - mid["iteration_s"] * mid["waiting"] / mid["network_s"])
        print(
            f"| {place} | {mid['iteration_s']:.3f} | {mid['computing_s']:.3f} | {mid['waiting']:.0%} "
            f"| {mid['network_s']:.3f} | {hidden:.0%} | {mid['nic_s']:.4f} |"
        )
    for name in ("iteration_s", "computing_s"):
        ratios = [b[name] / a[name] for a, b in zip(runs["process"], runs["host"], strict=True)]
        print(f"{name}, host / process by pair: {' '.join(f'{each:.2f}' for each in ratios)}")
    return runs


def detect(bench: Bench, pairs: int) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    print("| loss | detect, ms | iteration, s | of the row's first | sent again | went back |")
    print("|---|---:|---:|---:|---:|---:|")
    for loss in LOSSES:
        if loss != "0%":
            bench.fault("set", *LINKS, "--loss", loss)
        first = None
        for detect_ms in DETECTS_MS:
            run = bench.job("--detect", str(detect_ms))
            rows[f"{loss} {detect_ms:g}"] = run
            first = first or run["iteration_s"]
            print(
                f"| {loss} | {detect_ms:g} | {run['iteration_s']:.3f} | {run['iteration_s'] / first:.2f} "
                f"| {run['again']:.1%} | {run['gone_back']} |",
                flush=True,
            )
    bench.fault("clear", "all")
    return rows


def faults(bench: Bench, pairs: int) -> dict[str, Any]:
    """Kill processes, or make the job wait, and resume each job where it ended."""
    testbed, rows = bench.testbed, {}
    bench.job()
    kills = {
        "optimizer node killed": lambda: pid_of(testbed.pid, "workloads.luwu.service"),
        "worker killed": lambda: _worker(testbed),
        "NIC of a worker killed": lambda: pid_of(testbed.pid, "workloads.luwu.nic"),
    }
    print("| fault | what happens | s | iterations done again |\n|---|---|---:|---:|")
    for name, victim in kills.items():
        states = bench.states()

        def act(victim: Callable[[], int] = victim) -> None:
            os.kill(victim(), signal.SIGKILL)

        text, seconds, last, _ = bench.broken(act, states)
        ended = [line for line in text.splitlines() if re.search(r"SIGKILL|ended with -9", line)]
        resumed = command("testbed.run", *bench.words(states, "--resume", steps=0), timeout_s=250)
        first = int(re.findall(r"from iteration (\d+)", resumed.stdout)[0])
        bench.job("--resume", states=states, steps=STEPS - first)
        rows[name] = {"seconds": seconds, "last": last, "resumed": first, "said": ended[:1]}
        print(
            f"| {name} | {ended[0] if ended else '?'} | {seconds:.1f} | {last - min(first, last)} |",
            flush=True,
        )
    waits = {"a worker's link": "u1h1", "the node's link": "u2h1"}
    for name, link in waits.items():

        def dark(link: str = link) -> None:
            bench.fault("set", link, "--loss", "100%")
            time.sleep(1.0)
            bench.fault("clear", link)

        _, seconds, _, _ = bench.broken(dark, bench.states(), STEPS)
        rows[f"{name} dark"] = {"seconds": seconds}
        print(
            f"| {name} dark for some 1 s | goes on; longest time without an iteration | {seconds:.2f} | 0 |",
            flush=True,
        )
    plain = bench.job()
    slow = bench.job("--rates", "reads=20e6,write_states=20e6")
    rows["disk slow"] = {"plain": plain, "slow": slow}
    ratio = slow["iteration_s"] / plain["iteration_s"]
    print(f"| disk of 20 MB/s each way | {ratio:.2f} times an iteration | | 0 |")
    return rows


def _worker(testbed: Testbed) -> int:
    for pid in pids_in_testbed(testbed.pid):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        if SCRIPT.encode() in line and b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    raise SystemExit("worker 1 does not run")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parts: dict[str, Callable[[Bench, int], dict[str, Any]]] = {
        "nic": nic,
        "detect": detect,
        "faults": faults,
    }
    parser.add_argument("parts", nargs="+", choices=list(parts))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    with open_folder() as folder:
        config = folder / "testbed.yaml"
        config.write_text(CONFIG)
        with running(str(config)) as testbed:
            bench = Bench(testbed, folder)
            measured = {part: parts[part](bench, options.pairs) for part in options.parts}
    assert len(bench.numbers) == 1, f"parameters differ: {bench.numbers}"
    if options.json:
        options.json.write_text(json.dumps({**facts(), **measured}, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.TimeoutExpired as late:
        sys.exit(str(late))
