"""`testbed status`: shows what runs on a testbed, for people and as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from testbed.client import environment, terminal_text

if TYPE_CHECKING:
    from testbed.client.last_words import LastWords
    from testbed.client.runtime import Runtime
    from testbed.messages.jobs import JobStatus, NetworkUse, SummingNode, SummingTree
    from testbed.messages.links import FaultStatus, LinkStatus
    from testbed.messages.queue import QueueStatus
    from testbed.messages.status import (
        ControllerStatus,
        DeadStatus,
        HostStatus,
        LivingStatus,
        OpticalModelStatus,
        RackStatus,
        Status,
    )
    from testbed.messages.timetable import TimetableStatus

WATCH_S = 1.0


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    parser = environment.Parser(prog="testbed status", description="Show what runs on a testbed.")
    parser.add_argument("--name", help="the testbed; without it, the one that runs, or a list if several do")
    parser.add_argument("--json", action="store_true", help="print one JSON object with everything")
    parser.add_argument("--watch", action="store_true", help="show it again every second, until Ctrl-C")
    arguments = parser.parse_args(argv)
    while True:
        text, answered = said(arguments)
        if not arguments.watch:
            print(text)
            return 0 if answered else 1
        if sys.stdout.isatty():
            terminal_text.raw(sys.stdout).write("\033[H\033[J")
        print(text, flush=True)
        time.sleep(WATCH_S)


def said(arguments: argparse.Namespace) -> tuple[str, bool]:
    """Return the text to print, and whether all running testbeds answered. Raises TestbedError if no such
    testbed runs, or if the only one's status cannot be read.
    """
    from testbed.api.state import status
    from testbed.client.runtime import DEFAULT_NAME, Runtime, dead, running
    from testbed.errors import TestbedError
    from testbed.messages.coding import as_json
    from testbed.messages.status import NOT_ANSWERING

    names = [arguments.name] if arguments.name else running() or dead() or [DEFAULT_NAME]
    runtimes = [Runtime.of(name) for name in names]
    ended = [
        (runtime, last) for runtime in runtimes if (last := runtime.last_words()) and not runtime.alive()
    ]
    if ended:
        if arguments.json:
            statuses = [as_json(dead_status(*each)) for each in ended]
            return json.dumps(statuses[0] if len(statuses) == 1 else statuses, indent=2), False
        return "\n".join(dead_page(*each) for each in ended), False
    for runtime in runtimes:
        runtime.require_alive()
    testbeds: list[LivingStatus] = []
    errors: list[str] = []
    for runtime in runtimes:
        try:
            testbeds.append(status(runtime))
        except TestbedError as error:  # another version's status, which this one cannot read
            if len(runtimes) == 1:
                raise
            errors.append(terminal_text.line(str(error)))
    answered = not errors and all(testbed.state != NOT_ANSWERING for testbed in testbeds)
    if arguments.json:
        if errors:
            print("\n".join(errors), file=sys.stderr)
        return json.dumps(as_json(testbeds[0] if len(runtimes) == 1 else testbeds), indent=2), answered
    testbeds = terminal_text.lines(testbeds)
    if len(runtimes) == 1:
        return page(testbeds[0]), answered
    return "\n".join([*map(line, testbeds), *errors]), answered


def dead_status(runtime: Runtime, last: LastWords) -> DeadStatus:
    """Describe a testbed that died, with its logs."""
    from dataclasses import asdict

    from testbed.client.last_words import logs
    from testbed.messages.status import DEAD, DeadStatus

    paths = tuple(str(log) for log in logs(runtime.folder))
    return DeadStatus(**asdict(last), state=DEAD, logs=paths)


def dead_page(runtime: Runtime, last: LastWords) -> str:
    """Format a testbed that died, with the last lines of its daemon's log."""
    from testbed.client.last_words import last_lines, logs

    lines = [f"testbed {last.name} is not running: {last}"]
    lines.append(f"  it was {last.user}'s, configuration {last.configuration}, pid {last.pid}")
    names = " ".join(log.name for log in logs(runtime.folder))
    lines.append(f"  logs, until the next `up`, in {runtime.log}: {names or 'none that may be read'}")
    lines += [f"    {text}" for text in last_lines(runtime.log / "daemon.log")]
    return "\n".join(map(terminal_text.line, lines))


def line(testbed: LivingStatus) -> str:
    """Format a testbed's line in a list of several."""
    running = f"{len(testbed.hosts)} hosts, {len(testbed.jobs)} jobs"
    pid = "-" if testbed.pid is None else testbed.pid
    return f"{testbed.name:<16} {testbed.state:<10} pid {pid:<8} {testbed.configuration:<12} {running}"


def page(testbed: LivingStatus) -> str:
    """Format a testbed in full."""
    from testbed.messages.status import NOT_ANSWERING, Status

    pid = "" if testbed.pid is None else f", pid {testbed.pid}"
    lines = [f"testbed {testbed.name}: {testbed.state}{pid}"]
    if not isinstance(testbed, Status):
        return f"{lines[0]}: {testbed.error}" if testbed.state == NOT_ANSWERING else lines[0]
    lines[0] += f", up {testbed.uptime_s:.0f} s, {testbed.user}'s, configuration {testbed.configuration}"
    lines.append("")
    for unit in testbed.units:
        unit_hosts = [host for host in testbed.hosts if host.unit == unit.name]
        hosts = [host.name for host in unit_hosts]
        used = sum(host.job is not None for host in unit_hosts)
        lines.append(
            f"  {unit.name:<5} {unit.kind:<10} {len(hosts):>3} hosts ({used} in use)"
            f"{racks_text(unit.tors)}"
            f"  {unit.optical_ports} optical ports{planes_text(unit.planes)}"
            f"  engine {unit.engine}{restarted_text(unit.restarts)}"
        )
        own = unit.link_rates_mbps
        lines += unequal_lines(unit_hosts, own)
        lines += own_lines({link: rate for link, rate in own.items() if link not in hosts})
    lines += [
        "",
        f"  circuits    {circuits_text(testbed)}",
        f"  controller  {controller_text(testbed.controller)}",
    ]
    if core := testbed.core:
        links = named([f"{unit.name}c" for unit in testbed.units])
        lines.insert(-1, f"  core        electrical, {links}: {rate_text(core.rate_mbps)}")
    if model := testbed.optical_model:
        lines.append(f"  optics      {optics_text(model)}")
    if failed := testbed.failed_locks:
        lines.append(f"  locks       {failed_text(failed)}")
    lines.append(f"  links       {links_text(testbed.links)}")
    if testbed.calendar:
        hint = environment.typed("circuits queues", testbed.name)
        lines.append(f"  queues      {calendar_text(testbed)} ({hint})")
    for host in testbed.hosts:
        if host.exec:
            named_so = f" ({host.second_name})" if host.second_name else ""
            lines.append(f"  exec        {host.name}{named_so}: {host.exec.line}: {host.exec.state}")
    if visited := [host for host in testbed.hosts if host.commands_of]:
        who = ", ".join(f"{host.name} ({' and '.join(host.commands_of)})" for host in visited)
        lines.append(f"  commands    at {who}; these hosts are kept from jobs of others")
    if apart := testbed.kept_apart:
        frames = ", ".join(f"{host} {count}" for host, count in apart.items())
        lines.append(f"  apart       frames to hosts of other users' jobs, dropped: {frames}")
    if down := [link.name for link in testbed.links if not link.up or link.name in testbed.down]:
        lines.append(f"  down        {' '.join(down)} ({environment.typed('link list', testbed.name)})")
    for link, device in testbed.gone_links.items():
        lines.append(f"  attention   link {link}: its device {device} was deleted: down, and up again")
    if testbed.faults:
        hint = environment.typed("fault list", testbed.name)
        lines.append(f"  faults      {faults_text(testbed.faults)} ({hint})")
    if testbed.cores_busy:
        lines.append(f"  cores       {' '.join(f'{share:.0%}' for share in testbed.cores_busy)} busy")
    lines.append("")
    queued = testbed.queued
    for job in testbed.jobs:
        if job.id in queued:
            continue
        ps = f", ps on {job.ps_host}" if job.ps_host else ""
        lines.append(
            f"  job {job.id}: {job.state} for {job.running_s:.0f} s, {job.sync}, {job.user}'s "
            f"{job.script}"
            f" on {' '.join(job.hosts)}{ps}"
        )
        more = (
            *sums_lines(job.sums),
            *uses_lines(job.uses),
            *counts_lines(job),
            *job.service_lines,
            *waiting_lines(job),
        )
        lines += [f"    {line}" for line in more]
    if not testbed.jobs:
        lines.append("  no jobs")
    if testbed.schedule:
        lines += [*([""] if lines[-1] else []), *queue_lines(testbed.schedule)]
    return "\n".join(lines)


def sums_lines(trees: Sequence[SummingTree] | None) -> list[str]:
    """Format a line for each tree of a job: the place at its top, its share, and its contributors; behind a
    place, in brackets, that place's own.
    """
    return [f"{tree.place} sums {tree.share:.0%}: {' '.join(_contributors(tree))}" for tree in trees or []]


def uses_lines(uses: NetworkUse | None) -> list[str]:
    """Format the circuits and links that a job uses, in one line."""
    if not uses:
        return []
    circuits = ", ".join(f"{a}-{b}" for a, b in uses.circuits)
    return [f"uses {f'circuits {circuits}; ' if circuits else ''}links {' '.join(uses.links)}"]


def calendar_text(testbed: Status) -> str:
    """Format the frames that waited for their slots in a timetable, of all units together."""
    queues = testbed.calendar
    waiting, sent = sum(each.waiting for each in queues), sum(each.sent for each in queues)
    longest_ms = max(each.longest_ms for each in queues)
    text = f"{waiting} frames wait for their slot; {sent} waited, {longest_ms:.1f} ms at most"
    dropped, unlit = sum(each.dropped for each in queues), sum(each.unlit for each in queues)
    text += f"; {dropped} found no room" if dropped else ""
    text += f"; for {unlit} no circuit ever came" if unlit else ""
    overrun = testbed.calendar_overrun
    return text + (f"; {overrun} came faster than this machine took them in" if overrun else "")


def counts_lines(job: JobStatus) -> Sequence[str]:
    """Return the lines of its data-plane program's counts; empty if that counts none."""
    from testbed.plugins.counts import counts_of

    counts = counts_of(job)
    return [] if counts is None else counts.lines()


def waiting_lines(job: JobStatus) -> list[str]:
    """Return the line on what a job's workers wait for, if they have waited long."""
    return [job.waiting] if job.waiting else []


def _contributors(node: SummingTree | SummingNode) -> list[str]:
    below = [f"{child.place} ({' '.join(_contributors(child))})" for child in node.below]
    return [*below, *node.workers]


def racks_text(racks: Sequence[RackStatus]) -> str:
    """Say how many racks a pod has, and which of their ToRs were restarted; empty for a rack."""
    if not racks:
        return ""
    again = ", ".join(f"{rack.name}{restarted_text(rack.restarts)}" for rack in racks if rack.restarts)
    return f" in {len(racks)} racks" + (f" ({again})" if again else "")


def own_lines(rates_mbps: Mapping[str, float | None]) -> list[str]:
    """Format a line for each declared rate that links between switches have of their own."""
    kinds: dict[float | None, list[str]] = {}
    for link, rate_mbps in rates_mbps.items():
        kinds.setdefault(rate_mbps, []).append(link)
    return [f"        {named(links)}: {rate_text(rate_mbps)}" for rate_mbps, links in kinds.items()]


def named(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{' '.join(names[:8])}{more}"


def rate_text(rate_mbps: float | None) -> str:
    return "unshaped" if rate_mbps is None else f"{rate_mbps / 1e3:g} Gb/s"


def planes_text(planes: dict[str, int]) -> str:
    """Say how many of a unit's optical ports belong to each plane, in brackets."""
    return f" ({', '.join(f'{count} of {name}' for name, count in planes.items())})" if planes else ""


def unequal_lines(hosts: Sequence[HostStatus], own: Collection[str] = ()) -> list[str]:
    """Format a line for each kind of a unit's hosts: its link's declared rate and number of cores. Empty if
    the hosts are alike, without limits on cores, and without rates of their own links (`own`).
    """
    kinds: dict[tuple[float | None, float | None], list[str]] = {}
    for host in hosts:
        kinds.setdefault((host.rate_mbps, host.cpus), []).append(host.name)
    if len(kinds) == 1 and next(iter(kinds))[1] is None and not any(host.name in own for host in hosts):
        return []
    lines = []
    for (rate_mbps, cpus), names in kinds.items():
        limit = "" if cpus is None else f", {cpus:g} cores"
        lines.append(f"        {named(names)}: {rate_text(rate_mbps)}{limit}")
    return lines


def queue_lines(schedule: QueueStatus) -> list[str]:
    """Format the policy, and the jobs that have arrived and not ended; those that have not arrived are only
    counted.
    """
    jobs = schedule.jobs
    lines = [
        f"  {head:<10}  {line}" for head, line in zip(("queue", ""), policy_lines(schedule), strict=True)
    ]
    lines += [f"  attention   {text}" for text in schedule.complaints]
    lines += [
        "",
        f"  {'job':>5} {'name':<16} {'state':<10} {'mode':<4} {'Gb/s':>7} {'done':>5} {'s':>7}  hosts",
    ]
    for job in jobs:
        if job.state in ("coming", "ended"):
            continue
        begin = job.arrival_s if job.started_s is None else job.started_s
        ps = f", ps on {job.ps_host}" if job.ps_host else ""
        lines.append(
            f"  {job.id:>5} {job.name:<16} {job.state:<10} {job.mode or '-':<4} "
            f"{job.rate_gbps:>7g}"
            f" {job.progress:>5.0%} {schedule.seconds - begin:>7.1f}  "
            f"{' '.join(job.hosts) or '-'}{ps}"
        )
    return lines


def policy_lines(schedule: QueueStatus) -> tuple[str, str]:
    """Format the policy with its number of jobs by state, and its counters."""
    states = [job.state for job in schedule.jobs]
    return (
        f"policy {schedule.policy}, slot {schedule.slot} of {schedule.slot_s:g} s; "
        f"{len(states)} jobs, {states.count('ended')} ended, {states.count('coming')} to come",
        f"{schedule.reconfigured_connections} connections set up in "
        f"{schedule.reconfigurations} reconfigurations; "
        f"{schedule.overruns} slots overrun, {schedule.policy_failures} without a valid decision",
    )


def turns_text(table: TimetableStatus) -> str:
    """Describe a timetable in a line."""
    from testbed.wire.places import AT_ONCE

    routing = "" if table.routing == AT_ONCE else f", routing {table.routing}"
    return f"{len(table.matchings)} matchings take turns every {table.period_ms:g} ms{routing}"


def circuits_text(testbed: Status) -> str:
    """Format the circuits with the jobs that use them, and the dark ports or the timetable."""
    if testbed.circuits is None:
        return "not known while the controller is away"
    jobs = {each.circuit: each.jobs for each in testbed.circuit_jobs}
    lit = ", ".join(f"{a}-{b}{jobs_text(jobs.get((a, b), ()))}" for a, b in testbed.circuits) or "none"
    if table := testbed.timetable:
        return f"{turns_text(table)}; before and after: {lit}"
    return f"{lit}; dark now: {', '.join(testbed.dark)}" if testbed.dark else lit


def optics_text(model: OpticalModelStatus) -> str:
    """Format an optical model that is not the default, with its settings, long ones shortened."""
    from testbed.topology.fields import shown

    parts = [f"{name} {shown(value)}" for name, value in model.values.items()]
    for kind in (model.planes, model.ports):
        parts += [f"{of} {name} {shown(value)}" for of, own in kind.items() for name, value in own.items()]
    return f"{model.name}: {', '.join(parts)}" if parts else model.name


def failed_text(failed: Mapping[str, int]) -> str:
    """Say how many of the transceivers' attempts to lock have failed, and at which ports most."""
    most = sorted(failed, key=lambda port: -failed[port])
    more = f" and at {len(most) - 8} ports more" if len(most) > 8 else ""
    count = sum(failed.values())
    worst = ", ".join(f"{port} {failed[port]}" for port in most[:8])
    return f"{count} attempt{'s' * (count > 1)} failed: {worst}{more}"


def jobs_text(jobs: Sequence[int]) -> str:
    """List the jobs that use a circuit, in brackets; empty if none does."""
    return f" (job{'s' * (len(jobs) > 1)} {' '.join(map(str, jobs))})" if jobs else ""


def controller_text(controller: ControllerStatus) -> str:
    text = controller.state + (f" on {controller.library}" if controller.library else "")
    if controller.state == "running" and not controller.ready:
        text += f": {'; '.join(controller.lacks or ())}"
    return text + restarted_text(controller.restarts)


def restarted_text(restarts: int) -> str:
    times = {1: "once", 2: "twice"}.get(restarts, f"{restarts} times")
    return f", restarted {times}" if restarts else ""


def links_text(links: Sequence[LinkStatus]) -> str:
    """Say how many links have each rate, and how many frames were dropped."""
    kinds = Counter(link.rate_mbps for link in links)
    rates = ", ".join(
        f"{count} at {'no limit' if rate is None else f'{rate:g} Mb/s'}" for rate, count in kinds.items()
    )
    return f"{rates}; {sum(link.drops for link in links)} frames dropped"


def faults_text(faults: Sequence[FaultStatus]) -> str:
    """Say which links have faults, and what these did since they were set."""
    links = list(dict.fromkeys(fault.link for fault in faults))
    done = {
        name: sum(fault.counters[name] for fault in faults)
        for name in ("lost", "duplicated", "held", "corrupted")
    }
    counts = ", ".join(f"{count} {name}" for name, count in done.items() if count) or "nothing yet"
    return f"on {' '.join(links)}: {counts}"


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
