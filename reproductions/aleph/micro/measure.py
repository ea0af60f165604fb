"""Single measurements, each on a rig of its own: what a head receives, loses, answers and copies, and the CPU
time that it uses.

The head's CPU time is that of the threads that poll its ends of the links, and of its processes. For XDP the
polling is all of it; for TCP it is the stack up to the socket. Hosts and their ends of the links do not
count: in the paper they are other machines.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reproductions.aleph.micro.clocks import Used
from reproductions.aleph.micro.rig import (
    BACK,
    BY_MAP,
    MERGED,
    NOBODY,
    NOT_MERGED,
    PORT,
    Cores,
    Rig,
    Tools,
    awaited,
    counted,
)
from reproductions.aleph.micro.rows import AnyCost, CopyRow, RoundTripRow, SumRow

WARM_S = 0.3
PS = "ps"
WORKERS, RECEIVERS = 4, 4
CHUNK_BYTES = 65536
PORTS = 6000
JOB = "micro"
INTO_MAP = "xdp"  # the case of one_packet in which the packet ends in the BPF map of results


def names(count: int) -> list[str]:
    return [f"w{at}" for at in range(1, count + 1)]


def _chunk_bytes(tools: Tools, case: str) -> int:
    return 4 * tools.lanes if case == "tcp-packet" else CHUNK_BYTES


def _window(
    seconds: float, taken: Callable[[], dict[str, int]], used: Callable[[], Used]
) -> tuple[float, dict[str, int], Used]:
    """Count over a window that begins after the warm-up. Return its seconds, the counts, and the CPU time."""
    time.sleep(WARM_S)
    begin, before, before_used = time.monotonic(), taken(), used()
    time.sleep(seconds)
    after, after_used, end = taken(), used(), time.monotonic()
    return end - begin, {name: after[name] - before[name] for name in after}, after_used - before_used


def _row(kind: type[AnyCost], case: str, bits: float, seconds: float, used: Used, on: Cores) -> AnyCost:
    cpu_s = used.ran / 1e9
    return kind(
        cores=len(on.head),
        shared=bool(set(on.head) & set(on.others)),
        seconds=seconds,
        cpu_s=cpu_s,
        load=cpu_s / seconds / len(on.head),
        waited=used.waited / 1e9 / seconds / len(on.head),
        gbps=bits / 1e9 / seconds,
        gbps_per_core=bits / 1e9 / cpu_s if cpu_s else 0.0,
        case=case,
    )


def xdp_sum(
    tools: Tools, mode: str, on: Cores, seconds: float, per_s: float = 0.0, program: str = "sum_up"
) -> SumRow:
    """Measure the aggregation service under `per_s` packets a second (0: as many as it accepts)."""
    hosts = names(WORKERS)
    with Rig(tools, [*hosts, PS], on) as rig:
        rig.reset(BY_MAP)
        for worker, host in enumerate(hosts):
            rig.attach(program, host, mode)
            rig.target(worker, host)
        rig.attach("take", PS, at_head=False)
        rig.results_to(PS)
        rig.source(WORKERS, per_s)
        awaited(lambda: rig.tally()["received"] > 0, f"XDP in {mode} mode: packets of gradients")
        lasted, counts, used = _window(
            seconds, lambda: rig.tally() | {"sent": rig.sent(WORKERS)}, rig.used_by_head
        )
        taken = counts["received"]
        return replace(
            _row(SumRow, f"xdp-{mode}", taken * tools.lanes * 32, lasted, used, on),
            lanes=tools.lanes,
            program=program,
            asked_per_s=per_s or None,
            per_s=taken / lasted,
            ns_per_packet=used.ran / taken if taken else None,
            loss=max(0.0, 1 - taken / counts["sent"]) if counts["sent"] else 0.0,
            counts=counts,
        )


def tcp_sum(tools: Tools, case: str, on: Cores, seconds: float, gbps: float = 0.0) -> SumRow:
    """Measure aggregators in user space, one for each core of the head, each with a share of the workers;
    under `gbps`, or as much as they accept (0).

    Cases: tcp, in chunks of 64 KiB; tcp-packet, in chunks of a packet's gradients; tcp-gro, with segments
    merged before TCP receives them; ps, the parameter server in Python.
    """
    hosts = names(max(WORKERS, 2 * len(on.head)))
    chunk = _chunk_bytes(tools, case)
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(tools, hosts, on, MERGED if case == "tcp-gro" else NOT_MERGED))
        servers, files = [], []
        for at, core in enumerate(on.head):
            mine = hosts[at :: len(on.head)]
            port, file = str(PORTS + at), tools.folder / f"sum-{at}"
            file.unlink(missing_ok=True)
            if case == "ps":
                words = ["--bind", "0.0.0.0", "--port", port, "--workers", str(len(mine)), "--job", JOB]
                server = rig.start(core, None, "-m", "workloads.parameter_server", *words)
            else:
                server = rig.start(core, None, "sum", port, str(len(mine)), str(chunk), str(file))
            rig.ready(server)
            interval = int(len(hosts) * chunk * 8 / gbps) if gbps else 0
            for rank, host in enumerate(mine):
                address = rig.address(host)
                core_of = on.others[hosts.index(host) % len(on.others)]
                if case == "ps":
                    module = "reproductions.aleph.micro.ps_worker"
                    rig.start(
                        core_of, host, "-m", module, address, port, str(rank), str(len(mine)), str(file)
                    )
                else:
                    rig.start(core_of, host, "push", address, port, str(chunk), str(interval))
            servers.append(server)
            files.append(file)
        awaited(lambda: all(counted(file) for file in files), f"{case}: sums")
        lasted, counts, used = _window(
            seconds,
            lambda: {"bytes": sum(map(counted, files)), "process": rig.used_by(servers).ran},
            lambda: rig.used_by_head() + rig.used_by(servers),
        )
        return replace(
            _row(SumRow, case, counts["bytes"] * 8, lasted, used, on),
            asked_gbps=gbps or None,
            per_s=counts["bytes"] / lasted / (4 * tools.lanes),
            ns_per_packet=used.ran * 4 * tools.lanes / counts["bytes"] if counts["bytes"] else None,
            process_share=counts["process"] / used.ran if used.ran else 0.0,
        )


def xdp_copies(tools: Tools, on: Cores, seconds: float, per_s: float = 0.0) -> CopyRow:
    """Measure the copies that the gradient forwarder makes of `per_s` packets a second (0: as many as the
    receivers accept).
    """
    receivers = [f"r{at}" for at in range(1, RECEIVERS + 1)]
    with Rig(tools, ["w1", *receivers], on) as rig:
        rig.reset(NOBODY, receivers=RECEIVERS)
        rig.attach("copy_out", "w1")
        rig.target(0, "w1")
        for index, host in enumerate(receivers):
            rig.receiver(index, rig.attach("take", host, at_head=False))
        rig.copies_to(receivers, rig.readdressing())
        rig.source(1, per_s)
        awaited(lambda: rig.tally()["taken"] > 0, "XDP: copies")
        lasted, counts, used = _window(seconds, lambda: rig.tally() | {"sent": rig.sent(1)}, rig.used_by_head)
        return replace(
            _row(CopyRow, "xdp-native", counts["taken"] * tools.lanes * 32, lasted, used, on),
            lanes=tools.lanes,
            per_s=counts["received"] / lasted,
            asked_per_s=per_s or None,
            loss=max(0.0, 1 - counts["taken"] / (RECEIVERS * counts["received"]))
            if counts["received"]
            else 0,
            counts=counts,
        )


def tcp_copies(tools: Tools, case: str, on: Cores, seconds: float, gbps: float = 0.0) -> CopyRow:
    """Measure a process that sends every chunk to each receiver; cases as in `tcp_sum`."""
    chunk = _chunk_bytes(tools, case)
    receivers, file = [f"r{at}" for at in range(1, RECEIVERS + 1)], tools.folder / "copies"
    file.unlink(missing_ok=True)
    interval = int(RECEIVERS * chunk * 8 / gbps) if gbps else 0
    with Rig(tools, receivers, on) as rig:
        words = [str(PORTS), str(RECEIVERS), str(chunk), str(interval), str(file)]
        server = rig.start(on.head[0], None, "copy", *words)
        rig.ready(server)
        for at, host in enumerate(receivers):
            rig.start(on.others[at % len(on.others)], host, "pull", rig.address(host), str(PORTS))
        awaited(lambda: counted(file) > 0, "TCP: copies")
        lasted, counts, used = _window(
            seconds,
            lambda: {"bytes": counted(file)},
            lambda: rig.used_by_head() + rig.used_by([server]),
        )
        return replace(_row(CopyRow, case, counts["bytes"] * 8, lasted, used, on), asked_gbps=gbps or None)


def one_packet(tools: Tools, case: str, on: Cores, per_s: float, seconds: float) -> RoundTripRow:
    """Measure the round trip of one packet, at `per_s` packets a second (0: as many as can be sent).

    Cases: xdp, until the packet is in the map of results, at the host's interface; xdp-socket, until a
    process has read it from a socket; tcp. ValueError if the timer's output is malformed.
    """
    host = "w1"
    count = max(1, int(per_s * seconds)) if per_s else 1_000_000
    interval = int(1e9 / per_s) if per_s else 0
    file = tools.folder / "times"
    file.unlink(missing_ok=True)
    with Rig(tools, [host], on) as rig:
        rig.reset(BACK, passes=case == "xdp-socket")
        server: list[Any] = []
        if case == "tcp":
            server.append(rig.start(on.head[0], None, "answer", str(PORT)))
            rig.ready(server[0])
        else:
            rig.attach("sum_up", host)
            rig.attach("take", host, at_head=False)
        words = ["tcp" if case == "tcp" else "udp", rig.address(host), str(interval), str(count)]
        timer = rig.start(on.others[0], host, "time", *words, str(int(seconds * 1e9)), str(file))
        assert timer.stdout is not None
        before = rig.used_by_head() + rig.used_by(server)
        counts = timer.stdout.readline().split()
        used = rig.used_by_head() + rig.used_by(server, ended=True) - before
        if len(counts) != 3:
            raise ValueError(f"{case}: the timer said {counts!r}")
        sent, answered, took_ns = map(int, counts)
        times: Any = np.fromfile(file, np.uint32)[:answered]
        if case == INTO_MAP:
            times = rig.delays_ns()
            answered = rig.tally()["taken"]
        return RoundTripRow(
            case=case,
            asked_per_s=per_s or None,
            per_s=sent / (took_ns / 1e9),
            sent=sent,
            answered=answered,
            loss=max(0.0, 1 - answered / sent),
            shared=bool(set(on.head) & set(on.others)),
            waited=float(used.waited / times.sum()) if len(times) else 0.0,
            mean_us=float(times.mean() / 1e3) if len(times) else None,
            median_us=float(np.median(times) / 1e3) if len(times) else None,
            p99_us=float(np.percentile(times, 99) / 1e3) if len(times) else None,
        )
