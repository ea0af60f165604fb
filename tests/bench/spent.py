"""The parts of the time of an unshaped all-reduce, by a profile of both cores while workers communicate.

`python -m tests.bench.spent [--workers 4] [--mtu 1500] [--json FILE]`, as root, with Debian's linux-perf.
Samples are of both cores, during all-reduces only. A sample counts for one of RULES, found by searching its
call chain from the innermost function outwards, so that the parts add up. Samples of other programs, and time
in which the hypervisor ran something else, are not distinguished.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.host import facts
from tests.bench.rack import Setup, Trial, measure

HERTZ = 1999
IDLE, OTHER = "idle", "other"
RULES = (
    (r"_tor_port$", "ToR: the program (check, sum, write the result)"),
    (r"_host_port$", "host: the program (check, result into the mapped ring)"),
    (r"skb_pp_cow_data|veth_convert_skb_to_xdp_buff|page_pool_alloc", "ToR: the copy into a page for XDP"),
    (
        r"xdpf_clone|dev_map_|xdp_do_redirect|xdp_do_flush|veth_xdp_xmit|veth_ndo_xdp_xmit|xdp_convert",
        "ToR: multicast and redirect",
    ),
    (r"try_to_wake_up|sock_def_readable|__wake_up|ttwu_", "waking a worker"),
    (
        r"__netif_receive_skb|netif_receive_skb|veth_xdp_rcv_one|xdp_build_skb",
        "the packet that wakes a worker, up the stack",
    ),
    (r"consume_skb|kfree_skb|napi_consume|skb_release|__xdp_return|xdp_return", "freeing frames"),
    (r"veth_poll|veth_xdp_rcv|net_rx_action", "polling veth"),
    (r"skb_checksum_help|skb_checksum|csum_partial", "sending: checksums"),
    (r"skb_segment|__udp_gso_segment|skb_gso_segment", "sending: cutting into frames"),
    (r"_copy_from_iter|ip_generic_getfrag|csum_and_copy|skb_copy_to_page", "sending: copy from the process"),
    (r"sendmsg|sys_send|dev_queue_xmit|veth_xmit", "sending: the rest of UDP, IP and veth"),
    (r"ppoll|do_sys_poll|sys_recv|__schedule|schedule", "worker: going to sleep, and what woke it"),
    (r"default_idle|cpuidle|do_idle", IDLE),
)
ENDPOINT = "worker: the endpoint (quantise, encode, decode, protocol)"
_COMPILED = [(re.compile(pattern), name) for pattern, name in RULES]


def samples(text: str) -> Iterator[tuple[float, list[str], bool]]:
    """Yield the samples of `perf script`'s output: the time, the functions from the innermost outwards, and
    whether the innermost belongs to the endpoint.
    """
    for block in text.split("\n\n"):
        head, _, chain = block.strip().partition("\n")
        stamp = re.search(r"([\d.]+):\s*$", head)
        if not stamp:
            continue
        functions, endpoint = [], False
        for at, line in enumerate(chain.splitlines()):
            words = line.split()
            if len(words) >= 2:
                functions.append(words[1].split("+")[0])
                endpoint |= at == 0 and "endpoint" in words[-1]
        yield float(stamp[1]), functions, endpoint


def part(functions: Sequence[str], endpoint: bool) -> str:
    """Return the part that a sample counts for."""
    if endpoint:
        return ENDPOINT
    for function in functions:
        for pattern, name in _COMPILED:
            if pattern.search(function):
                return name
    return OTHER


def profile(workers: int, mtu: int, size_bytes: int) -> dict[str, Any]:
    """Make one run. Return the share of both cores' time by part, and the number of pairs of push and
    result.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        argv = [
            "perf",
            "record",
            "-q",
            "-a",
            "-e",
            "cpu-clock",
            "-F",
            str(HERTZ),
            "-g",
            "-k",
            "CLOCK_MONOTONIC",
            "-o",
            data,
        ]
        recorder = subprocess.Popen(argv, stderr=subprocess.PIPE)
        try:
            trial = Trial("spent", ("inc",), size_bytes, turns=6, rounds=1)
            inc = measure(Setup((workers,), mtu=mtu), [trial])[0]["runs"][0]["inc"]
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.communicate()
        fields = "comm,time,ip,sym,dso"
        text = subprocess.run(
            ["perf", "script", "-i", data, "-F", fields, "--ns"], capture_output=True, text=True, check=True
        ).stdout
    spans = [(start, start + seconds) for start, seconds in zip(inc["starts"], inc["seconds"], strict=True)]
    counts: collections.Counter[str] = collections.Counter()
    unknown: collections.Counter[str] = collections.Counter()
    for at, functions, endpoint in samples(text):
        if any(start <= at <= end for start, end in spans):
            name = part(functions, endpoint)
            counts[name] += 1
            if name == OTHER and functions:
                unknown[functions[0]] += 1
    total = sum(counts.values())
    core_us = sum(inc["seconds"]) * 1e6 * (os.cpu_count() or 1)
    return {
        "workers": workers,
        "mtu": mtu,
        "goodput_mbps": inc["goodput_mbps"],
        "pairs_per_s": inc["pairs"] / sum(inc["seconds"]),
        "samples": total,
        "shares": {name: count / total for name, count in counts.most_common()},
        "us_per_pair": {name: count / total * core_us / inc["pairs"] for name, count in counts.most_common()},
        "other": unknown.most_common(20),
    }


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spent", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--mbytes", type=float, default=16.0, help="size of the vector (%(default)s)")
    arguments = parser.parse_args(argv)
    if not shutil.which("perf"):  # the one benchmark that needs it: the others go on
        print("spent: left out, as perf is missing; Debian's package linux-perf has it", file=sys.stderr)
        return 0
    figures = profile(arguments.workers, arguments.mtu, int(arguments.mbytes * 1e6) // 4 * 4)
    print(
        f"{figures['workers']} workers, {figures['goodput_mbps']:.0f} Mb/s each, "
        f"{figures['pairs_per_s']:.0f} pushes and results a second, {figures['samples']} samples"
    )
    for name, share in figures["shares"].items():
        print(f"{100 * share:5.1f} %  {figures['us_per_pair'][name]:5.2f} us a pair  {name}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"host": facts(), "profile": figures}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
