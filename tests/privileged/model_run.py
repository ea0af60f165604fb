"""The reference model and the XDP programs in step: whatever one gets the other gets, and what they say and send must be the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from testbed.inc.job import Job, Sender
from testbed.simulation.aggregator import Aggregator, Emission, To
from testbed.wire import frame, spec
from testbed.wire.frame import Frame
from testbed.xdp import layout
from testbed.xdp.engine import Cells
from testbed.xdp.program import Programs
from testbed.xdp.syscall import map_lookup
from tests.privileged.fuzz_run import OTHER, OTHER_BASE, OTHER_UP_BASE, at_ps, at_switch
from tests.privileged.xdp_aggregator import UNIT, XdpAggregator
from tests.vectors import mutations
from tests.vectors.build import (
    BASE,
    JOB,
    OPTICAL,
    PS_IP,
    SIZE,
    SLOTS,
    TOR_IP,
    UP_BASE,
    job_across,
    job_at_ps,
    job_in_unit,
    lanes,
    partial,
    push,
    result_from_ps,
    worker_lanes,
)
from tests.vectors.world import PS_PORT, UPLINK, Weather, World

EXAMPLES, STEPS = 25, 400
STATES = {0: (False, False), 1: (False, False), 2: (True, False), 3: (True, True)}  # -> complete, final
SETTINGS = settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate])


class Both:
    """An engine of the vectors that is two. Answers with the model's answer, which says where frames leave as well."""

    def __init__(self, model: Aggregator, xdp: XdpAggregator, count: Callable[[str], None]) -> None:
        self._model, self._xdp, self._count = model, xdp, count

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        senders = list(senders)
        self._model.bind(port, senders)
        self._xdp.bind(port, senders)

    def admit(self, number: int, job: Job) -> None:
        self._model.admit(number, job)
        self._xdp.admit(number, job)

    def release(self, number: int) -> None:
        self._model.release(number)
        self._xdp.release(number)

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        verdict, emissions = self._model.receive(data, port)
        other, left = self._xdp.receive(data, port)
        assert other == verdict, f"XDP says {other}, the model {verdict}; port {port}, {data[:90].hex()}"
        assert len(left) == len(emissions), f"{verdict}: {len(left)} frames left, {len(emissions)} from the model"
        for mine, theirs in zip(emissions, left, strict=True):
            assert _same(mine.data, theirs.data), (
                f"{verdict}: {theirs.data[:90].hex()} left, not {mine.data[:90].hex()}"
            )
            assert mine.to is To.ROUTE or theirs.data[:6] == mine.data[:6] or verdict == "mismatch"
        self._count(verdict)
        return verdict, emissions

    def compare_slots(self, lanes_each: int = spec.LANES) -> None:
        """Every slot's state."""
        kind = layout.slot(lanes_each)
        for at in range(SLOTS):
            held = self._model.slot(at)
            raw = map_lookup(self._xdp.slots, at.to_bytes(4, "little"), kind.itemsize)
            assert raw is not None
            theirs = np.frombuffer(raw, kind)[0]
            if held.generation is None:
                assert theirs["state"] == 0, f"slot {at} is taken"
                continue
            told = {name: int(theirs[name]) for name in ("generation", "fragment", "bitmap")}
            assert told == {"generation": held.generation, "fragment": held.fragment, "bitmap": held.members}, (
                f"slot {at}"
            )
            assert STATES[int(theirs["state"])] == (held.complete, held.final), f"slot {at}"
            pairs = theirs["pairs"]
            assert (np.stack([pairs >> 32, pairs & 0xFFFFFFFF], 1).reshape(-1) == held.lanes).all(), f"slot {at}"


def _same(mine: bytes, theirs: bytes) -> bool:
    """All but the MAC addresses, which are the fabric's; of a packet made here, every field, for it may keep an odd type of service."""
    if mine[12:] == theirs[12:]:
        return True
    try:
        told = [{**Frame.parse(data).fields(), "source_mac": "", "destination_mac": ""} for data in (mine, theirs)]
    except ValueError:
        return False
    return told[0] == told[1] and frame.ipv4_checksum_holds(theirs)


def inside(programs: Programs, ports: dict[int, int]) -> dict[str, dict[str, int]]:
    """By what was tried, how often each verdict was given."""
    cells = Cells(programs)
    return {
        "worlds": worlds(cells, ports),
        "schedules": schedules(cells, ports),
        "mutations": mutated(cells, ports),
    }


class Tally:
    """How often each verdict was given."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, verdict: str) -> None:
        self.counts[verdict] = self.counts.get(verdict, 0) + 1


# ---------------------------------------------------------------------- whole jobs


def worlds(cells: Cells, ports: dict[int, int]) -> dict[str, int]:
    """Workers that keep the window, in one unit and over two with a PS, in all weathers."""
    tally = Tally()
    mine = {
        0: {**{port: ports[port] for port in range(1, 8)}, PS_PORT: ports[PS_PORT], UPLINK: ports[UPLINK]},
        1: {**{port: ports[10 + port] for port in range(1, 8)}, UPLINK: ports[OPTICAL[1]]},
        -1: {1: ports[30]},
    }

    @SETTINGS
    @given(
        st.sampled_from([(2,), (3,), (7,), (1, 1), (2, 1), (2, 3)]),
        st.sampled_from([2, 4, 16]),
        st.builds(
            Weather,
            st.sampled_from([0.0, 0.05, 0.3]),
            st.sampled_from([0.0, 0.2]),
            st.booleans(),
            st.integers(0, 2**32),
        ),
    )
    def run(units: tuple[int, ...], size: int, weather: Weather) -> None:
        with ExitStack() as stack:
            engines = []

            def make(node: int, ip: str, is_host: bool) -> Both:
                xdp = stack.enter_context(XdpAggregator(cells, mine[node], is_host, node + 1 or UNIT))
                engines.append(Both(Aggregator(ip, SLOTS, is_host=is_host), xdp, tally))
                return engines[-1]

            World(units, 20, size, weather, make, worker_lanes).run()
            for engine in engines:
                engine.compare_slots()

    run()
    return tally.counts


# ---------------------------------------------------------------------- schedules that keep no window


def schedules(cells: Cells, ports: dict[int, int]) -> dict[str, int]:
    """Pushes, partial sums and results in any order, within the window or not, of this generation or another, jobs coming and going."""
    tally = Tally()

    @SETTINGS
    @given(
        st.sampled_from(["final", "partial", "ps"]),
        st.integers(0, 2**32),
        st.sampled_from([0, 5, 2**31 - 40, 2**32 - 40]),
    )
    def run(kind: str, seed: int, start: int) -> None:
        is_host = kind == "ps"
        with XdpAggregator(cells, ports, is_host) as xdp:
            engine = Both(Aggregator(PS_IP if is_host else TOR_IP, SLOTS, is_host=is_host), xdp, tally)
            _schedule(engine, kind, random.Random(seed), start)
            engine.compare_slots()

    run()
    return tally.counts


def _schedule(engine: Both, kind: str, chance: random.Random, start: int) -> None:
    makes: dict[str, Callable[..., Job]] = {
        "final": lambda **c: job_in_unit(4, **c),
        "partial": job_across,
        "ps": job_at_ps,
    }
    members = {"final": (0, 1, 2, 3), "partial": (1, 3), "ps": (0, 1, 2)}[kind]
    generation, at = 3, start
    if kind != "ps":
        for worker in members:
            engine.bind(worker + 1, [Sender(JOB, worker)])
    engine.admit(JOB, makes[kind]())
    base = UP_BASE if kind == "ps" else BASE
    for _ in range(STEPS):
        at = (at + (chance.random() < 0.4)) % 2**32
        fragment = (at + chance.choice((0, 0, 0, 0, -1, -2, -SIZE, SIZE, 2 * SIZE, 2**31))) % 2**32
        fields = {
            "slot": base + fragment % SIZE if chance.random() < 0.97 else chance.randrange(2**32),
            "generation": generation if chance.random() < 0.95 else (generation + chance.choice((-1, 1))) % 2**32,
            "count": chance.randrange(spec.LANES + 1),
            "flags": chance.choice((0, int(spec.Flag.RETRANSMIT))),
        }
        worker = chance.choice(members)
        if kind == "ps":
            engine.receive(partial(worker, fragment, **fields), 1)
        elif kind == "partial" and chance.random() < 0.2:
            # inside the segment, with all lanes valid: see DEPARTURES in test_vectors.py
            fields |= {"slot": UP_BASE + fragment % SIZE, "count": spec.LANES, "flags": int(spec.Flag.FINAL)}
            engine.receive(result_from_ps(fragment, lanes(fragment), **fields), OPTICAL[0])
        else:
            fields |= {"count": spec.LANES} if kind == "partial" else {}
            engine.receive(push(worker, fragment, **fields), worker + 1)
        if chance.random() < 0.01:
            engine.release(JOB)
            if chance.random() < 0.5:
                engine.receive(push(members[0], at, generation=generation), members[0] + 1 if kind != "ps" else 1)
            generation += 1
            engine.admit(JOB, makes[kind](generation=generation))


# ---------------------------------------------------------------------- malformed and adversarial packets


def mutated(cells: Cells, ports: dict[int, int]) -> dict[str, int]:
    """The fuzz test's packets, one verdict and one frame at a time."""
    tally = Tally()
    for is_host, good in ((False, at_switch()), (True, at_ps())):
        with XdpAggregator(cells, ports, is_host) as xdp:
            engine = Both(Aggregator(PS_IP if is_host else TOR_IP, SLOTS, is_host=is_host), xdp, tally)
            job: Callable[..., Job] = job_at_ps if is_host else job_in_unit
            if not is_host:
                for port, sender in {
                    1: Sender(JOB, 0),
                    2: Sender(JOB, 1),
                    3: Sender(OTHER, 0),
                    4: Sender(OTHER, 1),
                }.items():
                    engine.bind(port, [sender])
                engine.bind(5, [])
            engine.admit(JOB, job(2))
            engine.admit(OTHER, job(2, generation=4, base=OTHER_UP_BASE if is_host else OTHER_BASE))
            chance = np.random.default_rng(5)
            senders = [1] if is_host else [1, 2, 3, 4, 5, *OPTICAL]
            for turn in range(14):
                for data in mutations.batch(chance, good, 500).frames():
                    engine.receive(data, senders[turn % len(senders)])
            engine.compare_slots()
    return tally.counts
