"""A million malformed and adversarial packets at one switch and one PS host, while a job's sums go on there."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from testbed.inc.job import Sender
from testbed.wire.frame import Frame
from testbed.xdp import layout
from testbed.xdp.engine import Cells
from testbed.xdp.program import Programs
from testbed.xdp.syscall import XDP_PASS, map_lookup
from tests.privileged.observed import Observed
from tests.privileged.xdp_aggregator import XdpAggregator
from tests.vectors import mutations
from tests.vectors.build import (
    JOB,
    OPTICAL,
    ROUTES,
    SIZE,
    job_at_ps,
    job_in_unit,
    partial,
    push,
    sum_of,
    workers_at_ports,
)
from tests.vectors.good import OTHER, OTHER_BASE, OTHER_GENERATION, OTHER_UP_BASE, at_ps, at_switch

CHUNK = 2000
_SYS_BPF, _TEST_RUN = {"x86_64": 321, "aarch64": 280, "riscv64": 280}[os.uname().machine], 10


class Gun:
    """Runs a program on a batch of frames, with nothing per frame but the system call and its arguments."""

    def __init__(self, program: int) -> None:
        self._attributes = ctypes.create_string_buffer(152)
        self._context = ctypes.create_string_buffer(24)
        struct.pack_into("=I", self._attributes, 0, program)
        struct.pack_into("=I", self._attributes, 32, 1)  # once
        struct.pack_into("=I", self._attributes, 40, 24)
        struct.pack_into("=Q", self._attributes, 48, ctypes.addressof(self._context))
        self._call = ctypes.CDLL(None, use_errno=True).syscall

    def fire(self, batch: mutations.Batch, ifindex: int) -> int:
        """How many frames the program passed on to the stack."""
        attributes, context, call = self._attributes, self._context, self._call
        size_and_place, data_end = struct.Struct("=IIQ").pack_into, struct.Struct("=I").pack_into
        struct.pack_into("=I", context, 12, ifindex)
        at, passed = batch.rows.ctypes.data, 0
        number, command, size = ctypes.c_long(_SYS_BPF), ctypes.c_int(_TEST_RUN), ctypes.c_uint(152)
        reference = ctypes.byref(attributes)
        for length in batch.lengths.tolist():
            size_and_place(attributes, 8, length, 0, at)
            data_end(context, 4, length)
            if call(number, command, reference, size) < 0:
                code = ctypes.get_errno()
                raise OSError(code, f"test run of {length} bytes: {os.strerror(code)}")
            passed += attributes[4] == _PASSED
            at += batch.stride
        return passed


_PASSED = bytes([XDP_PASS])


class Scene:
    """One aggregator under fire, and the sums of JOB on it."""

    def __init__(self, engine: XdpAggregator, gun: Gun, ports: dict[int, int], is_host: bool) -> None:
        self._engine, self._gun, self._ports, self._is_host = engine, gun, ports, is_host
        self._good = at_ps() if is_host else at_switch()
        self._send = partial if is_host else push
        self._from = [1] if is_host else [3, 4, 5, *OPTICAL]
        self.shot = self.passed = self.sums = 0

    def turn(self, random: np.random.Generator, fragment: int) -> None:
        """A fragment of JOB, under fire between its two contributions and damaged on its own way."""
        first, second = (self._send(worker, fragment) for worker in (0, 1))
        assert self._engine.receive(first, 1)[0] == "aggregated"
        for port in self._from:
            made = mutations.batch(random, self._good, CHUNK // len(self._from))
            self._fire(made, port)
        self._fire(mutations.damaged(random, [first, second], CHUNK // 10), 1 if self._is_host else 2)
        verdict, (left,) = self._engine.receive(second, 1 if self._is_host else 2)
        # one bit may have been lost where it does not matter, in a MAC address: then the contribution was in already
        assert verdict in ("completed", "resent"), verdict
        summed = Frame.parse(left.data)
        assert (summed.header.job, summed.header.fragment) == (JOB, fragment)
        assert (summed.lanes == sum_of(fragment, 0, 1)).all(), f"fragment {fragment} is wrong"
        self.sums += 1

    def _fire(self, made: mutations.Batch, port: int) -> None:
        self.passed += self._gun.fire(made, self._ports[port])
        self.shot += len(made.lengths)


def strangers(engine: XdpAggregator, programs: Programs, segments: Sequence[range]) -> list[int]:
    """Slots outside the segments that are not as they were made."""
    size = layout.slot(programs.lanes).itemsize
    outside = [at for at in range(layout.SIZES["MAX_SLOTS"]) if not any(at in segment for segment in segments)]
    return [at for at in outside if map_lookup(engine.slots, at.to_bytes(4, "little"), size) != bytes(size)]


def inside(programs: Programs, ports: dict[int, int], packets: str) -> list[dict[str, Any]]:
    """For the switch, which gets four in five packets, and the PS host."""
    return [shoot(programs, ports, is_host, int(packets) * share // 5) for is_host, share in ((False, 4), (True, 1))]


def shoot(programs: Programs, ports: dict[int, int], is_host: bool, packets: int) -> dict[str, Any]:
    random, began = np.random.default_rng(20), time.monotonic()
    with (
        Observed(programs) as observed,
        XdpAggregator(Cells(programs), observed, ports, is_host) as engine,
    ):
        base, job = (OTHER_UP_BASE, job_at_ps(2)) if is_host else (OTHER_BASE, job_in_unit(2))
        if not is_host:
            for port, senders in {
                **workers_at_ports([0, 1]),
                3: (Sender(OTHER, 0),),
                4: (Sender(OTHER, 1),),
                5: (),
            }.items():
                engine.bind(port, senders)
        for number in (JOB, OTHER):
            engine.set_group(number, OPTICAL)
        engine.set_routes(ROUTES)
        engine.admit(JOB, job)
        engine.admit(OTHER, type(job)(**{**_fields(job), "generation": OTHER_GENERATION, "base": base}))
        before = engine.verdicts()
        scene = Scene(
            engine,
            Gun(programs.program_fd("host_port" if is_host else "tor_port")),
            {1: ports[0]} if is_host else ports,
            is_host,
        )
        fragment = 0
        while scene.shot < packets:
            scene.turn(random, fragment)
            fragment += 1
        verdicts = {name: count - before[name] for name, count in engine.verdicts().items() if count > before[name]}
        return {
            "packets": scene.shot,
            "sums": scene.sums,
            "counted": sum(verdicts.values()) - 2 * scene.sums,
            "passed": scene.passed,
            "verdicts": verdicts,
            "strangers": strangers(engine, programs, [range(job.base, job.base + SIZE), range(base, base + SIZE)]),
            "seconds": time.monotonic() - began,
        }


def _fields(job: Any) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__slots__}
