"""Background traffic on a running testbed: an agent in each host that sends or receives, started through the
request `exec`, so as the asking user; the flows are computed here, and their outcomes collected.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.api.circuits import CircuitControl
from testbed.client import environment, rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError, TestbedError
from testbed.flows import coflow_trace
from testbed.flows.generators import Generator, TrafficReader
from testbed.flows.link_limits import LinkLimits, emulated_bytes, payload_bytes, segment_bytes
from testbed.flows.schedule import TooManyFlowsError, TrafficFlow, due_until, flows_of
from testbed.flows.summary import (
    FlowOutcome,
    FlowRecord,
    MachineFacts,
    generator_traffic,
    lateness,
    remarks,
    too_fast,
    verdict,
)
from testbed.host_commands import traffic_agent
from testbed.host_commands.piped import PipedCommand
from testbed.interpreters import isolated
from testbed.messages.coding import decode
from testbed.messages.journal import JournalAnswer
from testbed.messages.result import RunResult
from testbed.messages.traffic import TrafficEvent, TrafficResult
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.yaml_text import read_yaml

SECONDS, DRAIN_S = 10.0, 10.0
MOST_SECONDS = 3600.0
MOST_HOSTS = 60  # of the 64 commands that a testbed runs in hosts at once
_START_S, _LEAD_S, _COUNTS_S, _SPARE_S = 30.0, 0.2, 30.0, 30.0
_SETTLE_S = 0.2  # for datagrams under way when all senders have ended
_JOURNALED = ("link", "fault", "note")


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """The traffic of a file on a testbed: its flows, and how long it lasts. After `seconds`, flows have
    `drain_s` to finish.
    """

    file: str
    generators: tuple[Generator, ...]
    flows: tuple[TrafficFlow, ...]
    limits: LinkLimits
    seconds: float
    drain_s: float
    seed: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that send or receive, in the testbed's order."""
        used = {host for flow in self.flows for host in (flow.sender, flow.to)}
        return tuple(host for host in self.limits.topology.host_names if host in used)


def planned(
    runtime: Runtime,
    caller: Caller,
    traffic: str | Path | Sequence[Mapping[str, Any]],
    seconds: float = SECONDS,
    seed: int = 1,
    drain_s: float = DRAIN_S,
) -> TrafficPlan:
    """Compute the flows of a file, or of its content, on a running testbed. Raises RequestError for a fault
    in it.
    """
    for name, value, low in (("seconds", seconds, 0.01), ("drain", drain_s, 0.0)):
        if not low <= value <= MOST_SECONDS:
            raise RequestError(f"{name} {value:g}: {low:g} to {MOST_SECONDS:g} seconds are accepted")
    runtime.require_alive()
    try:
        limits = LinkLimits(Topology.from_json(runtime.topology.read_text()))
    except OSError as error:
        raise TestbedError(f"{runtime.topology}: {error.strerror}") from error
    path = Path(traffic) if isinstance(traffic, str | Path) else None
    file = "traffic" if path is None else str(path)
    rates = limits.rates_mbps
    reader = TrafficReader(rates, limits.names, (path or Path()).parent, coflow_trace.load)
    with caller.acting():
        data = traffic if path is None else read_yaml(path)
        generators = reader.read(data, file)
    try:
        flows = flows_of(generators, rates, seconds, seed)
    except RequestError as error:
        raise type(error)(f"{file}: {error}") from error
    plan = TrafficPlan(file, generators, flows, limits, seconds, drain_s, seed)
    if len(plan.hosts) > MOST_HOSTS:
        raise RequestError(
            f"{file}: {len(plan.hosts)} hosts send or receive; at most {MOST_HOSTS} are accepted, which the "
            f"key hosts names"
        )
    return plan


def carry_out(
    runtime: Runtime,
    caller: Caller,
    plan: TrafficPlan,
    on_begin: Callable[[], None] = lambda: None,
    is_over: Callable[[], bool] = lambda: False,
) -> TrafficResult:
    """Send a plan's flows, and return what became of them. `on_begin` is called once all agents have their
    flows; `is_over` may end the traffic early. Raises TestbedError if an agent cannot run; whatever happens,
    no agent is left.
    """
    with _agents(runtime, caller, plan.hosts) as agents:
        ports = {host: agent.answer(time.monotonic() + _START_S)["ports"] for host, agent in agents.items()}
        for host, agent in agents.items():
            agent.command.write(json.dumps(_orders(plan, host, ports)))
        start_ns = time.monotonic_ns() + round(_LEAD_S * 1e9)
        began = time.time() + _LEAD_S
        before = _processors()
        for agent in agents.values():
            agent.command.write(json.dumps({"start_ns": start_ns}))
        on_begin()
        _await_idle(agents, start_ns / 1e9 + plan.seconds + plan.drain_s, is_over)
        wall_s = time.monotonic() - start_ns / 1e9
        busy = _busy(before, _processors())
        for agent in agents.values():
            agent.command.write("end")
        deadline_s = time.monotonic() + _COUNTS_S
        counts = {host: agent.answer(deadline_s) for host, agent in agents.items()}
    if wall_s < plan.seconds and is_over():
        plan = replace(plan, flows=due_until(plan.flows, wall_s), seconds=wall_s)
    return _result(runtime, plan, counts, start_ns, began, wall_s, busy)


class BackgroundTraffic:
    """The traffic of a file while a job runs: a context manager, whose end ends the flows."""

    def __init__(self, runtime: Runtime, caller: Caller, file: Path, seed: int) -> None:
        """Compute the flows. Raises RequestError for a fault in the file."""
        self._runtime, self._caller = runtime, caller
        self._plan = longest(runtime, caller, file, seed)
        self._begun, self._over = threading.Event(), threading.Event()
        self._error: TestbedError | None = None
        self._result: TrafficResult | None = None

    def __enter__(self) -> Self:
        """Begin, and return once flows are sent."""
        self._begun.clear()
        self._over.clear()
        self._thread = threading.Thread(target=self._carry_out, name="traffic", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def added_to(self, job: RunResult) -> RunResult:
        """Add what became of the flows to a job's result; a note, if an agent ended before the job."""
        if self._error is not None:
            return replace(job, notes=(*job.notes, f"the background traffic failed: {self._error}"))
        assert self._result is not None
        return replace(job, traffic=self._result)

    def _carry_out(self) -> None:
        self._error = self._result = None
        try:
            self._result = carry_out(
                self._runtime, self._caller, self._plan, self._begun.set, self._over.is_set
            )
        except TestbedError as error:
            self._error = error
        finally:
            self._begun.set()


def longest(runtime: Runtime, caller: Caller, file: Path, seed: int) -> TrafficPlan:
    """Compute the flows of a file for as long as their number allows."""
    seconds = MOST_SECONDS
    while True:
        try:
            return planned(runtime, caller, file, seconds, seed, drain_s=0.0)
        except TooManyFlowsError:
            seconds /= 4


def _orders(plan: TrafficPlan, host: str, ports: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return an agent's part of the plan."""
    topology = plan.limits.topology
    ip = {addresses.host_name(*each): addresses.host_ip(*each) for each in topology.hosts}
    flows = []
    for number, flow in enumerate(plan.flows):
        if flow.sender == host:
            is_udp = flow.rate_mbps is not None
            bits_per_s = None if flow.rate_mbps is None else flow.rate_mbps * 1e6 / topology.scale
            size = emulated_bytes(flow.size, plan.limits.topology.scale)
            place = (ip[flow.to], ports[flow.to][is_udp])
            flows.append((number, round(flow.start_s * 1e9), *place, size, bits_per_s, flow.dscp))
    return {
        "flows": flows,
        "seconds_ns": round(plan.seconds * 1e9),
        "limit_ns": round((plan.seconds + plan.drain_s + _SPARE_S) * 1e9),
        "payload_bytes": payload_bytes(topology.mtu),
    }


class _RunningAgent:
    """An agent in a host, and the lines that it prints."""

    def __init__(self, command: PipedCommand) -> None:
        self.command, self._rest = command, b""
        self.is_idle = False

    def lines(self) -> list[bytes]:
        """Return the lines that can be read now; wait for some. Raises TestbedError if the agent has
        ended.
        """
        data = os.read(self.command.output, 1 << 20)
        if not data:
            text = self._rest.decode(errors="replace").strip().splitlines()
            words = f" ({text[-1]})" if text else ""
            raise TestbedError(f"traffic in {self.command.host}: {self.command.failure}{words}")
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def answer(self, deadline_s: float) -> dict[str, Any]:
        """Return the next line that is JSON."""
        texts: list[bytes] = []
        while (left_s := deadline_s - time.monotonic()) > 0:
            if not select.select([self.command.output], (), (), left_s)[0]:
                break
            for text in self.lines():
                if text.startswith(b"{"):
                    return dict(json.loads(text))
                texts.append(text)
                # what is no JSON precedes a failure, such as a traceback
                if text != b"idle":
                    self._rest = text + b"\n" + self._rest
        raise TestbedError(f"traffic in {self.command.host}: its agent has not answered in time")


@contextlib.contextmanager
def _agents(runtime: Runtime, caller: Caller, hosts: Sequence[str]) -> Iterator[dict[str, _RunningAgent]]:
    """Run an agent in each host while the block runs."""
    topology = Topology.from_json(runtime.topology.read_text())
    ip = {addresses.host_name(*each): addresses.host_ip(*each) for each in topology.hosts}
    python = environment.interpreter()
    with contextlib.ExitStack() as stack:
        agents = {}
        for host in hosts:
            argv = isolated("-I", "-S", str(traffic_agent.__file__), ip[host], path=python)
            command = stack.enter_context(PipedCommand(runtime.socket, caller, host, argv))
            agents[host] = _RunningAgent(command)
        yield agents


def _await_idle(agents: Mapping[str, _RunningAgent], deadline_s: float, is_over: Callable[[], bool]) -> None:
    """Wait until all agents' own flows have ended, and no longer than allowed."""
    by_output = {agent.command.output: agent for agent in agents.values()}
    while not all(agent.is_idle for agent in agents.values()) and not is_over():
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return
        for output in select.select(list(by_output), (), (), min(left_s, 0.1))[0]:
            agent = by_output[output]
            agent.is_idle |= b"idle" in agent.lines()
    time.sleep(min(_SETTLE_S, max(0.0, deadline_s - time.monotonic())))


def _result(
    runtime: Runtime,
    plan: TrafficPlan,
    counts: Mapping[str, Mapping[str, Any]],
    start_ns: int,
    began: float,
    wall_s: float,
    busy: float,
) -> TrafficResult:
    outcomes = _outcomes(len(plan.flows), counts.values(), start_ns)
    limits, scale = plan.limits, plan.limits.topology.scale
    pairs = {pair: limits.between(*pair) for pair in {(flow.sender, flow.to) for flow in plan.flows}}
    records = [
        FlowRecord(flow, outcome, pairs[flow.sender, flow.to].ideal_s(flow.size, flow.rate_mbps))
        for flow, outcome in zip(plan.flows, outcomes, strict=True)
    ]
    late = lateness(plan.generators, records, wall_s)
    facts = MachineFacts(busy, sum(each["overrun"] for each in counts.values()), _sent_share(plan, outcomes))
    fast = too_fast(plan.generators, records)
    is_trustworthy, line = verdict(late, facts, fast / len(records))
    rates = limits.rates_mbps
    total = generator_traffic(plan.generators, records, rates, plan.seconds, scale)
    sub_packet = sum(
        emulated_bytes(flow.size, scale) < segment_bytes(limits.topology.mtu) <= flow.size
        for flow in plan.flows
    )
    return TrafficResult(
        file=plan.file,
        testbed=runtime.name,
        scale=scale,
        seed=plan.seed,
        began=round(began, 3),
        seconds=plan.seconds,
        wall_s=round(wall_s, 3),
        hosts=plan.hosts,
        total=total,
        generators=tuple(
            generator_traffic(
                [generator], [each for each in records if each.flow.generator == number], rates,
                plan.seconds, scale,
            )
            for number, generator in enumerate(plan.generators)
        ),
        lateness=late,
        too_fast=fast,
        cores_busy=round(busy, 4),
        agents_cpu_s=round(sum(each["cpu_s"] for each in counts.values()), 3),
        events=_events(runtime, began, began + wall_s),
        notes=remarks(records, total, fast, sub_packet, scale),
        trustworthy=is_trustworthy,
        verdict=line,
    )  # fmt: skip


def _sent_share(plan: TrafficPlan, outcomes: Sequence[FlowOutcome]) -> float:
    """Return which share of the UDP flows' datagrams was sent; 1 without such flows."""
    payload = payload_bytes(plan.limits.topology.mtu)
    asked = [
        (-(-emulated_bytes(flow.size, plan.limits.topology.scale) // payload), outcome.sent)
        for flow, outcome in zip(plan.flows, outcomes, strict=True)
        if flow.rate_mbps is not None
    ]
    wanted = sum(count for count, _ in asked)
    return sum(sent for _, sent in asked) / wanted if wanted else 1.0


def _outcomes(flows: int, counts: Any, start_ns: int) -> list[FlowOutcome]:
    """Put the counts of senders and receivers together, by flow."""

    def after_s(at_ns: int | None) -> float | None:
        return None if at_ns is None else (at_ns - start_ns) / 1e9

    known: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for each in counts:
        for number, started_ns, ended_ns, error in each["flows"]:
            known[number] |= {"started_s": after_s(started_ns), "ended_s": after_s(ended_ns), "error": error}
        for number, started_ns, sent in each["streams"]:
            known[number] |= {"started_s": after_s(started_ns), "sent": sent}
        for number, in_time, _ in each["received"]:
            known[number] |= {"in_time_bytes": in_time}
        for number, distinct, again, ended_ns, in_time, _ in each["collected"]:
            known[number] |= {
                "received": distinct,
                "again": again,
                "ended_s": after_s(ended_ns),
                "in_time_bytes": in_time,
            }
    return [FlowOutcome(**known[number]) for number in range(flows)]


def _events(runtime: Runtime, began: float, ended: float) -> tuple[TrafficEvent, ...]:
    """Return what happened to the network meanwhile: changes of circuits, of links, and of faults."""
    events = []
    with contextlib.suppress(TestbedError):
        for change in CircuitControl(runtime).history():
            parts = [
                f"{word} {' '.join('-'.join(pair) for pair in pairs)}"
                for word, pairs in (("removed", change["removed"]), ("added", change["added"]))
                if pairs
            ]
            events.append((change["time"], f"circuits: {', '.join(parts) or 'none changed'}"))
    with contextlib.suppress(TestbedError):
        journal = decode(JournalAnswer, rpc.call(runtime.socket, "journal", timeout_s=10.0), "journal")
        events += [(each.time, each.text) for each in journal.entries if each.kind in _JOURNALED]
    return tuple(
        TrafficEvent(round(at - began, 3), text) for at, text in sorted(events) if began <= at <= ended
    )


def _processors() -> tuple[int, int]:
    """Return the idle and the whole time of the machine's processors, in ticks."""
    words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    ticks = [int(word) for word in words]
    return ticks[3] + ticks[4], sum(ticks)


def _busy(before: tuple[int, int], after: tuple[int, int]) -> float:
    idle, whole = after[0] - before[0], after[1] - before[1]
    return 1 - idle / whole if whole else 0.0
