"""`testbed status`: what runs on a testbed, for people and as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.client.runtime import Runtime

WATCH_S = 1.0


def main(argv: list[str]) -> int:
    """The exit code; see testbed/errors.py."""
    parser = argparse.ArgumentParser(prog="testbed status", description="Says what runs on a testbed.")
    parser.add_argument(
        "--name", help="of one testbed; without it, the one that runs, or a list if several do"
    )
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    arguments = parser.parse_args(argv)
    while True:
        text = said(arguments)
        if not arguments.watch:
            print(text)
            return 0
        clear = "\033[H\033[J" if sys.stdout.isatty() else ""
        print(f"{clear}{text}", flush=True)
        time.sleep(WATCH_S)


def said(arguments: argparse.Namespace) -> str:
    """What is printed once. Raises TestbedError when no such testbed runs."""
    from testbed.client.runtime import DEFAULT_NAME, Runtime, running

    names = [arguments.name] if arguments.name else running() or [DEFAULT_NAME]
    runtimes = [Runtime.of(name) for name in names]
    for runtime in runtimes:
        runtime.require_alive()
    found = [status(runtime) for runtime in runtimes]
    if arguments.json:
        return json.dumps(found[0] if len(found) == 1 else found, indent=2)
    return page(found[0]) if len(found) == 1 else "\n".join(line(one) for one in found)


def status(runtime: Runtime) -> dict[str, Any]:
    """What the daemon says; while it does not answer, what the main process wrote. Raises HostError for
    another user's.
    """
    from testbed.client import rpc
    from testbed.errors import HostError, RequestError, TestbedError

    told = runtime.read_main()
    try:
        return dict(rpc.call(runtime.socket, "status", timeout_s=10.0))
    except RequestError as error:
        raise HostError(str(error)) from error
    except TestbedError as error:
        state = "not answering" if told.get("state") == "ready" else told.get("state", "starting")
        empty: dict[str, Any] = {"units": [], "hosts": [], "circuits": [], "jobs": []}
        return {
            "name": runtime.name,
            "pid": told.get("pid"),
            **told,
            **empty,
            "state": state,
            "error": str(error),
        }


def line(one: dict[str, Any]) -> str:
    """One testbed in a list of several."""
    configuration = one.get("configuration", "")
    running = f"{len(one['hosts'])} hosts, {len(one['jobs'])} jobs"
    return f"{one['name']:<16} {one['state']:<10} pid {one['pid']:<8} {configuration:<12} {running}"


def page(one: dict[str, Any]) -> str:
    """One testbed in full."""
    lines = [f"testbed {one['name']}: {one['state']}, pid {one['pid']}"]
    if "uptime_s" not in one:
        return lines[0]
    lines[0] += f", up {one['uptime_s']:.0f} s, {one['user']}'s, configuration {one['configuration']}"
    lines.append("")
    busy = {host["name"]: host["job"] for host in one["hosts"]}
    for unit in one["units"]:
        hosts = [name for host in one["hosts"] if host["unit"] == unit["name"] for name in [host["name"]]]
        used = sum(busy[name] is not None for name in hosts)
        restarted = restarted_text(unit.get("restarts", 0))
        lines.append(
            f"  {unit['name']:<5} {unit['kind']:<10} {len(hosts):>3} hosts ({used} in use)"
            f"  {unit['optical_ports']} optical ports  engine {unit['engine']}{restarted}"
        )
    lines += [
        "",
        f"  circuits    {circuits_text(one)}",
        f"  controller  {controller_text(one['controller'])}",
    ]
    lines.append(f"  links       {links_text(one['links'])}")
    if one.get("faults"):
        lines.append(f"  faults      {faults_text(one['faults'])}")
    if one.get("cores_busy"):
        lines.append(f"  cores       {' '.join(f'{share:.0%}' for share in one['cores_busy'])} busy")
    lines.append("")
    queued = {job["id"] for job in (one.get("schedule") or {"jobs": []})["jobs"]}
    for job in one["jobs"]:
        if job["id"] in queued:
            continue
        ps = f", ps on {job['ps_host']}" if job["ps_host"] else ""
        lines.append(
            f"  job {job['id']}: {job['state']} for {job['running_s']:.0f} s, {job['sync']}, {job['user']}'s "
            f"{job['script']}"
            f" on {' '.join(job['hosts'])}{ps}"
        )
    if not one["jobs"]:
        lines.append("  no jobs")
    if one.get("schedule"):
        lines += [*([""] if lines[-1] else []), *queue_lines(one["schedule"])]
    return "\n".join(lines)


def queue_lines(schedule: dict[str, Any]) -> list[str]:
    """The policy, and the jobs that are not over; those that have not arrived are counted."""
    jobs = schedule["jobs"]
    states = {state: sum(job["state"] == state for job in jobs) for state in ("coming", "ended")}
    lines = [
        f"  queue       policy {schedule['policy']}, slot {schedule['slot']} of {schedule['slot_s']:g} s; "
        f"{len(jobs)} jobs,"
        f" {states['ended']} ended, {states['coming']} to come",
        f"              {schedule['reconfigured_connections']} connections set up in "
        f"{schedule['reconfigurations']} reconfigurations;"
        f" {schedule['overruns']} slots overrun, {schedule['policy_failures']} without a valid plan",
    ]
    lines += [f"  attention   {text}" for text in schedule["complaints"]]
    lines += [
        "",
        f"  {'job':>5} {'name':<16} {'state':<10} {'mode':<4} {'Gb/s':>7} {'done':>5} {'s':>7}  hosts",
    ]
    for job in jobs:
        if job["state"] in ("coming", "ended"):
            continue
        begin = job["arrival_s"] if job["started_s"] is None else job["started_s"]
        ps = f", ps on {job['ps_host']}" if job["ps_host"] else ""
        lines.append(
            f"  {job['id']:>5} {job['name']:<16} {job['state']:<10} {job['mode'] or '-':<4} "
            f"{job['rate_gbps']:>7g}"
            f" {job['progress']:>5.0%} {schedule['seconds'] - begin:>7.1f}  "
            f"{' '.join(job['hosts']) or '-'}{ps}"
        )
    return lines


def circuits_text(one: dict[str, Any]) -> str:
    if one["circuits"] is None:
        return "not known while the controller is away"
    lit = ", ".join(f"{a}-{b}" for a, b in one["circuits"]) or "none"
    return f"{lit}; dark now: {', '.join(one['dark'])}" if one["dark"] else lit


def controller_text(controller: dict[str, Any]) -> str:
    text = str(controller["state"]) + (f" on {controller['library']}" if controller.get("library") else "")
    if controller["state"] == "running" and not controller["ready"]:
        text += ", not every switch connected"
    return text + restarted_text(controller["restarts"])


def restarted_text(restarts: int) -> str:
    times = {1: "once", 2: "twice"}.get(restarts, f"{restarts} times")
    return f", restarted {times}" if restarts else ""


def links_text(links: list[dict[str, Any]]) -> str:
    """How many of each rate, and what was lost."""
    kinds: dict[float | None, int] = {}
    for link in links:
        kinds[link["rate_mbps"]] = kinds.get(link["rate_mbps"], 0) + 1
    rates = ", ".join(
        f"{count} at {'no limit' if rate is None else f'{rate:g} Mb/s'}" for rate, count in kinds.items()
    )
    return f"{rates}; {sum(link['drops'] for link in links)} frames dropped"


def faults_text(faults: list[dict[str, Any]]) -> str:
    """On which links, and what they did since they were set."""
    links = list(dict.fromkeys(fault["link"] for fault in faults))
    done = {
        name: sum(fault["counters"][name] for fault in faults)
        for name in ("lost", "duplicated", "held", "corrupted")
    }
    shown = ", ".join(f"{count} {name}" for name, count in done.items() if count) or "nothing yet"
    return f"on {' '.join(links)}: {shown} (testbed fault list)"


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
