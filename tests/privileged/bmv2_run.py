"""A BMv2 switch under requests, in namespaces of its own: `findings(NAME)` outside, `python -m` this file
inside.

A case is a function below; its result must be JSON-able.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.aggregation.entries import NO_IP, Entry, Sender, Tick
from testbed.dataplanes.bmv2 import control_port
from testbed.dataplanes.bmv2.process import thrift_port
from testbed.dataplanes.bmv2.program import compiled
from testbed.dataplanes.bmv2.routes import set_routes
from testbed.dataplanes.bmv2.switch import Bmv2Switch
from testbed.dataplanes.bmv2.switch_client import ANSWER_S, Action, Key, SwitchClient
from testbed.emulation.namespaces import private_mounts
from testbed.errors import TestbedError
from testbed.host_checks.frames import ETHER_TYPE, FRAME, arrives, make_veth, send, tool
from testbed.systems.luwu.contract import P4_OWNED_RECORDS
from testbed.systems.trio.contract import P4_SOURCES
from testbed.systems.trio.parts import CountedBlocks
from testbed.topology import addresses
from testbed.wire.places import P4_CELLS
from tests.privileged.packets import MARK, outcome
from tests.vectors.blocks import job, terms

HOSTS = (1, 2, 3)
MTU = 1500
JOB = Entry(
    tree=0, generation=7, workers=0b111, places=0, number=0, base=64, size=101, up_base=0, result_base=64,
    self_ip="10.0.1.254", up_ip=NO_IP, group_ip="239.192.0.5", lanes=360,
)  # fmt: skip
DEADLINE_S = 60.0
TICKS = 1021  # one for each of as many slots; a switch has more
STANDS_STILL_S = 0.5
BURST = 509  # a window is 512 packets at most
SO_RCVBUFFORCE = 33  # <asm-generic/socket.h>; Python has no name for it
LOG = Path("/run/openvswitch")  # a private tmpfs


def findings(case: str, *arguments: str) -> Any:
    """Run a case and return its findings. Fails the test with the case's output if it fails."""
    return outcome("tests.privileged.bmv2_run", case, *arguments, timeout_s=180)


def ports_of(unit: int) -> dict[str, int]:
    """Return the port number by device."""
    ports = {addresses.tor_port_device(unit, host): addresses.tor_port_number(host) for host in HOSTS}
    ports[addresses.optical_device(unit, 1)] = addresses.optical_number(1)
    return ports


def made_ports(unit: int) -> dict[str, int]:
    """Make the devices, which send nothing by themselves; their far ends are called eU-N. Return
    `ports_of`.
    """
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    ports = ports_of(unit)
    for device, number in ports.items():
        make_veth(device, f"e{unit}-{number}")
    return ports


@contextlib.contextmanager
def switch(
    unit: int = 1, programs: Sequence[str] | None = None, verbose: bool = False
) -> Iterator[Bmv2Switch]:
    program = compiled("wide", MTU, programs)
    with Bmv2Switch(unit, made_ports(unit), program, LOG, verbose) as started:
        yield started


def table(client: SwitchClient, name: str) -> dict[str, Any]:
    """Return a table's entries as key -> [action, data...], JSON-able."""
    return {
        f"{entry.value:x}" + ("" if entry.prefix is None else f"/{entry.prefix}"): [
            entry.action.name,
            *entry.action.data,
        ]
        for entry in client.entries(name)
    }


def refused(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except TestbedError as error:
        return str(error)
    return ""


def stop(pid: int) -> None:
    """Stop a process, and return once all of its threads are stopped: a thread that runs when the signal is
    sent could answer once more.
    """
    os.kill(pid, signal.SIGSTOP)
    while any(thread_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def thread_state(task: Path) -> str:
    """Return the state letter of proc_pid_stat(5), which follows the command's name."""
    return (task / "stat").read_text().rsplit(")", 1)[1].split()[0]


def settles() -> Any:
    """Return the tables, groups and counters of a new switch."""
    with switch() as tor:
        client = SwitchClient(1)
        tables = {name: table(client, name) for name in ("ports", "entries", "routes", "stations")}
        groups = {group: sorted(ports) for group, ports in client.groups().items()}
        return {"tables": tables, "groups": groups, "verdicts": tor.verdicts(), "ended": tor.ended()}


def admits() -> Any:
    """Admit a job; follow its entries in the tables, and a register of which only the job's segment is
    emptied.
    """
    with switch() as tor:
        client = SwitchClient(1)
        seen: dict[str, Any] = {}
        client.fill_register("slot_state", 0, P4_CELLS, 3)
        seen["before its group"] = refused(lambda: tor.admit(5, JOB))
        tor.set_group(5, 0, ["u1-h1", "u1-h3"])
        tor.set_group(6, 0, ["u1-h2"])
        tor.admit(5, JOB)
        states = client.register("slot_state")
        seen["emptied"] = [index for index, state in enumerate(states) if state == 0]
        seen["admitted"] = table(client, "entries")
        tor.set_group(5, 0, ["u1-h1", "u1-o1"])
        client.fill_register("slot_state", 0, P4_CELLS, 3)
        tor.admit(5, replace(JOB, generation=8, workers=0b11, number=1, up_base=64, up_ip="10.0.2.3"))
        seen["replaced"] = table(client, "entries")
        seen["kept its slots"] = client.register("slot_state").count(3)
        seen["groups"] = {group: sorted(ports) for group, ports in client.groups().items()}
        tor.bind(1, Sender(5, 0))
        tor.bind(3, Sender(5, None, is_place=True))
        seen["bound"] = table(client, "ports")
        tor.bind(1, None)
        tor.release(5)
        tor.release(5)
        tor.release(997)
        seen["released"] = [table(client, "entries"), sorted(client.groups()), table(client, "ports")]
        tor.set_group(7, 0, ["u1-h1"])
        seen["reused"] = sorted(client.groups())
        seen["no such port"] = refused(lambda: tor.set_group(8, 0, ["u1-h4"]))
        return seen


def admits_owned() -> Any:
    """Admit jobs with an owner: which record each has, and its contents."""
    with switch() as tor:
        client = SwitchClient(1)
        owned = replace(JOB, program="owned", owner_ip="10.0.2.3", size=4)
        heard: list[list[int]] = []

        def admit(number: int, generation: int) -> None:
            tor.admit(number, replace(owned, generation=generation, base=4 * number))
            heard.append(client.register("owned_heard")[:3])

        for register in ("owned_heard", "owned_sent_ack", "owned_sent_credit"):
            client.fill_register(register, 0, P4_OWNED_RECORDS, 5)
        for number, generation in ((5, 1), (6, 1), (5, 1), (5, 2)):
            tor.set_group(number, 0, ["u1-h1"])
            admit(number, generation)
        records = {key: entry[-1] for key, entry in table(client, "entries").items()}
        entry = table(client, "entries")["500"]
        tor.bind(1, Sender(5, None, is_owner=True))
        more = range(7, 7 + P4_OWNED_RECORDS - 2)
        for number in more:
            tor.set_group(number, 0, ["u1-h1"])
            tor.admit(number, replace(owned, base=4 * number))
        tor.set_group(100, 0, ["u1-h1"])
        full = refused(lambda: tor.admit(100, replace(owned, base=400)))
        tor.release(6)
        tor.admit(100, replace(owned, base=400))
        return {
            "heard": heard,
            "sent": [client.register(f"owned_sent_{name}")[:3] for name in ("ack", "credit")],
            "records": records,
            "entry": entry,
            "owner": table(client, "ports")["1"],
            "full": full,
            "then": table(client, "entries")["6400"][-1],
        }


def admits_blocks() -> Any:
    """Admit jobs that are summed by blocks: their records, their terms, and what remains of them."""
    names = ("block_active", "block_made", "block_missed", "block_floor", "block_reached", "block_marks")
    with switch() as tor:
        client = SwitchClient(1)
        seen: dict[str, Any] = {}
        for name in (*names, "slot_state"):
            client.fill_register(name, 0, len(client.register(name)), 1)
        by_blocks = replace(job(2), lanes=JOB.lanes, self_ip=JOB.self_ip)
        for number in (5, 6):
            tor.set_group(number, 0, ["u1-h1"])
            tor.admit(number, by_blocks)
        seen["terms"] = table(client, "terms")
        seen["programs"] = [data[-2] for data in table(client, "entries").values()]
        seen["cleared"] = {
            name: [cell for cell in enumerate(client.register(name)) if cell[1] != 1]
            for name in (*names, "slot_state")
        }
        client.fill_register("block_missed", P4_SOURCES, P4_SOURCES + 2, 9)
        blocks = tor.part("blocks")
        assert isinstance(blocks, CountedBlocks)
        counts = blocks.counts(6, 0)
        seen["counts"] = [counts.made, counts.active, counts.missed] if counts else None
        seen["of nobody"] = blocks.counts(7, 0)
        tor.set_group(7, 0, ["u1-h1"])
        seen["too many sources"] = refused(lambda: tor.admit(7, replace(by_blocks, places=1 << 64)))
        seen["no room"] = refused(lambda: tor.admit(7, replace(by_blocks, terms=terms(window=(1500, 2)))))
        tor.release(5)
        tor.admit(6, by_blocks)
        seen["left"] = sorted(table(client, "terms"))
        os.kill(tor.pid or 0, signal.SIGKILL)
        _await(tor.ended, "the end is seen")
        seen["of one that ended"] = blocks.counts(6, 0)
        tor.restart()
        tor.set_group(6, 0, ["u1-h1"])
        tor.admit(6, by_blocks)
        seen["again"] = table(client, "terms")
        return seen


def replaces_routes() -> Any:
    """Replace routes by another client than the switch's own, as the controller does."""
    with switch():
        client, ports = SwitchClient(1), {"u1-h1": 1, "u1-h2": 2, "u1-o1": 201}
        seen: list[Any] = []
        mac = addresses.host_mac(1, 1)
        for routes in (
            {("10.0.1.1", 32): (("u1-h1",), mac), ("10.0.2.0", 24): (("u1-o1",), "")},
            {
                ("10.0.1.1", 32): (("u1-h1",), mac),
                ("10.0.2.0", 24): (("u1-h2",), ""),
                ("10.0.3.0", 24): (("u1-o1",), ""),
            },
            {("10.0.3.0", 24): (("u1-o1",), "")},
        ):
            before = {entry.value: entry.handle for entry in client.entries("routes")}
            set_routes(client, ports, routes)
            after = {entry.value: entry.handle for entry in client.entries("routes")}
            kept = sum(before[value] == after[value] for value in before.keys() & after.keys())
            seen.append([table(client, "routes"), kept])
        seen.append(refused(lambda: set_routes(client, ports, {("10.0.1.1", 32): (("u1-h9",), "")})))
        return seen


def refuses() -> Any:
    """Make requests that the switch itself refuses."""
    with switch():
        client = SwitchClient(1)
        return [
            refused(lambda: client.add_entry("nothing", Key(1, 16), Action("no_entry"))),
            refused(lambda: client.add_entry("ports", Key(1, 9), Action("from_host", (0,)))),
            refused(lambda: client.add_entry("ports", Key(9, 9), Action("set_entry"))),
            refused(lambda: client.delete_entry("entries", 997)),
            refused(lambda: client.fill_register("slot_state", 0, P4_CELLS + 1, 0)),
            refused(lambda: client.counters("verdicts", [0, 9999, 1])),
            client.counters("verdicts", [0, 1]),  # still in step: the answers belong to these requests
        ]


def _await(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.01)


def dies_and_comes_again() -> Any:
    """Kill the switch by its pid; every request reports it. Start it again from a thread that ends, and use a
    client from before.
    """
    with switch() as tor:
        controller = SwitchClient(1)
        seen: dict[str, Any] = {}
        tor.set_group(5, 0, ["u1-h1"])
        tor.admit(5, JOB)
        tor.bind(1, Sender(5, 0))
        set_routes(controller, {"u1-o1": 201}, {("10.0.2.0", 24): (("u1-o1",), "")})
        pid = tor.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        _await(tor.ended, "the end is seen")
        seen["ended"] = tor.ended()
        seen["admit"] = refused(lambda: tor.admit(6, JOB))
        seen["group"] = refused(lambda: tor.set_group(6, 0, []))
        seen["verdicts"] = refused(tor.verdicts)
        seen["controller"] = refused(lambda: controller.entries("routes"))
        seen["bind"] = refused(lambda: tor.bind(1, Sender(5, 0)))
        tor.bind(1, None)
        tor.release(5)
        starter = threading.Thread(target=tor.restart)
        starter.start()
        starter.join()
        seen["again"] = tor.ended()
        seen["another"] = tor.pid != pid
        seen["jobs"], seen["routes"] = table(controller, "entries"), table(controller, "routes")
        seen["ports"] = table(controller, "ports")
        tor.set_group(5, 0, ["u1-h1"])
        tor.admit(5, JOB)
        seen["crossed"] = sorted(arrives(["e1-2", "e1-3"], lambda: send("e1-1", FRAME)))
        os.kill(tor.pid or 0, signal.SIGKILL)
        tor.restart()  # although its end was not noticed yet
        seen["at once"] = tor.ended()
    seen["left"] = tor.ended()
    return seen


def hangs() -> Any:
    """Stop the switch, so that it does not answer, and let it continue."""
    with switch() as tor:
        client, pid = SwitchClient(1, answer_s=0.3), tor.pid
        assert pid is not None
        stop(pid)
        said = refused(client.ports)
        os.kill(pid, signal.SIGCONT)
        client._answer_s = ANSWER_S  # the answer may take its time now
        return [said, client.ports() == {**ports_of(1), "u1-c": addresses.CONTROL_PORT}, tor.ended()]


def hangs_under_a_job(asked: str) -> Any:
    """Stop the switch under a job; `asked` is the first request then, and all others follow. It is not
    continued.
    """
    with switch() as tor:
        requests: dict[str, Callable[[], object]] = {
            "release": lambda: tor.release(5),
            "admit": lambda: tor.admit(5, JOB),
            "bind": lambda: tor.bind(1, Sender(5, 0)),
            "bind nobody": lambda: tor.bind(1, None),
            "set_group": lambda: tor.set_group(6, 0, ["u1-h2"]),
            "verdicts": tor.verdicts,
        }

        def start_job() -> None:
            tor.set_group(5, 0, ["u1-h1"])
            tor.admit(5, JOB)
            tor.bind(1, Sender(5, 0))

        start_job()
        seen: dict[str, Any] = {}
        assert tor.pid is not None
        stop(tor.pid)
        seen["said"], seen["took_s"] = _timed(lambda: refused(requests[asked]))
        seen["ended"] = tor.ended()
        order = ("admit", "set_group", "verdicts", "bind nobody", "release")
        seen["others"], seen["others_took_s"] = _timed(
            lambda: {each: refused(requests[each]) for each in order}
        )
        tor.restart()
        seen["restarted"] = tor.ended()
        start_job()
        client = SwitchClient(1)
        seen["jobs"] = [entry.action.name for entry in client.entries("entries")]
        seen["ports"], seen["groups"] = table(client, "ports"), sorted(client.groups())
        return seen


def disagrees() -> Any:
    """Delete an entry by another client, and read a group back differently than it was set."""
    with switch() as tor:
        seen: dict[str, Any] = {}
        tor.set_group(5, 0, ["u1-h1"])
        tor.admit(5, JOB)
        other = SwitchClient(1)
        other.delete_entry("entries", other.entries("entries")[0].handle)
        process, waited = tor._process, list[float]()
        assert process is not None
        ended = process.ended

        def noted(within_s: float = 0.0) -> str | None:
            waited.append(within_s)
            return ended(within_s)

        process.ended = noted  # type: ignore[method-assign]
        seen["refused"] = refused(lambda: tor.admit(5, JOB))
        seen["waited_s"] = waited
        del process.ended
        seen["runs"] = tor.ended()
        tor._client.groups = lambda: {}  # type: ignore[method-assign]
        seen["unset"] = refused(lambda: tor.set_group(5, 0, ["u1-h1"]))
        seen["ended"] = tor.ended()
        del tor._client.groups
        tor.restart()
        seen["restarted"] = tor.ended()
        return seen


def _timed(attempt: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.monotonic()
    return attempt(), time.monotonic() - begun


def takes_bursts() -> Any:
    """Send a window's results, and more, through one port as fast as possible: how many of BURST came out of
    each of two others.
    """
    with switch() as tor, contextlib.ExitStack() as stack:
        listeners = []
        for device in ("e1-2", "e1-3"):
            listener = stack.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
            )
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
            listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            listener.bind((device, ETHER_TYPE))
            listener.settimeout(DEADLINE_S)
            listeners.append(listener)
        sender = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        sender.bind(("e1-1", 0))
        for number in range(BURST):
            sender.send(FRAME + number.to_bytes(2, "big") + bytes(1400))
        came: list[set[int]] = []
        for listener in listeners:
            numbers: set[int] = set()
            with contextlib.suppress(TimeoutError):
                while len(numbers) < BURST:
                    numbers.add(int.from_bytes(listener.recv(2048)[len(FRAME) : len(FRAME) + 2], "big"))
            came.append(numbers)
        return [[len(numbers) for numbers in came], tor.verdicts()["switched"]]


def takes_ticks() -> Any:
    """Return how many threads had sent their part of a burst of ticks while the switch was stopped, how many
    ticks it had handled in the end, and the message where it was stopped for too long, with the count then.
    """
    with switch() as tor:
        tor.set_group(5, 0, ["u1-h1"])
        tor.admit(5, JOB)
        assert tor.pid is not None
        stop(tor.pid)
        with ThreadPoolExecutor() as pool:
            ticking = [pool.submit(_tick, tor, range(at, TICKS, 4)) for at in range(4)]
            time.sleep(STANDS_STILL_S)
            before = sum(future.done() for future in ticking)
            os.kill(tor.pid, signal.SIGCONT)
            for future in ticking:
                future.result()
        late = _tick_late(tor, TICKS)
        stop(tor.pid)
        control_port.ANSWER_S = STANDS_STILL_S
        sent, said = 0, ""
        while not said:
            said = refused(partial(_tick, tor, [sent]))
            sent += not said
        os.kill(tor.pid, signal.SIGCONT)
        control_port.ANSWER_S = DEADLINE_S
        _tick(tor, range(TICKS - sent))
        return before, late, said, _tick_late(tor, 2 * TICKS)


def _tick_late(tor: Bmv2Switch, least: int) -> int:
    """Return the count of late ticks once it is at least `least`, or the deadline has passed."""
    deadline = time.monotonic() + DEADLINE_S
    while (late := tor.verdicts()["tick_late"]) < least and time.monotonic() < deadline:
        time.sleep(0.01)
    return late


def _tick(tor: Bmv2Switch, fragments: Iterable[int]) -> None:
    for fragment in fragments:
        tor.tick(Tick(5, JOB.generation, 0, JOB.base, fragment, 1))


def starts_in_vain() -> Any:
    """Start with a missing port, with one that is down, with an invalid program, with a Thrift port that is
    in use, and with a control port that another switch has.
    """
    ports, program = made_ports(1), compiled("wide", MTU)
    other = LOG / "other.json"
    other.write_text('{"program": "none"}')

    def start(ports: dict[str, int], program: Path) -> None:
        with Bmv2Switch(1, ports, program, LOG, False):
            pass

    seen: list[Any] = [refused(lambda: start({**ports, "u1-h9": 9}, program))]
    tool("ip", "link", "set", "u1-h3", "down")
    seen.append(refused(lambda: start(ports, program)))
    tool("ip", "link", "set", "u1-h3", "up")
    seen.append(refused(lambda: start(ports, other)))
    with socket.create_server(("127.0.0.1", thrift_port(1))):
        seen.append(refused(lambda: start(ports, program)))
    with Bmv2Switch(1, ports, program, LOG, False):
        seen.append([refused(lambda: start(ports, program)), Path("/sys/class/net/u1-c").exists()])
    seen.append([name for name in os.listdir("/proc") if name.isdecimal() and _is_switch(name)])
    return seen


def _is_switch(pid: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path("/proc", pid, "comm").read_text().strip() == "simple_switch"
    return False


def _sockets() -> set[str]:
    """Return the sockets that switches may leave in /tmp, where other programs make and remove files too."""
    return {name for name in os.listdir("/tmp") if name.startswith("bm")}


def side_by_side() -> Any:
    """Run two switches, one without any system's program, and report what each left behind."""
    before = _sockets()
    with switch(1) as whole, switch(2, programs=(), verbose=True) as bare:
        whole.set_group(5, 0, ["u1-h1"])
        crossed = [
            sorted(arrives([f"e{unit}-2", f"e{unit}-3"], partial(send, f"e{unit}-1", FRAME)))
            for unit in (1, 2)
        ]
        counted = [each.verdicts()["switched"] > 0 for each in (whole, bare)]
        groups = [sorted(SwitchClient(unit).groups()) for unit in (1, 2)]
    logs = sorted(path.name for path in LOG.iterdir() if "bmv2" in path.name)
    processes = [name for name in os.listdir("/proc") if name.isdecimal() and _is_switch(name)]
    return {
        "crossed": crossed,
        "counted": counted,
        "groups": groups,
        "logs": logs,
        "written": (LOG / "u2-bmv2-packets.txt").stat().st_size > 0,
        "processes": processes,
        "sockets": sorted(_sockets() - before),
    }


def dies_with_its_parent() -> Any:
    """Kill the process that started a switch: the switch must not outlive it."""
    ports, program = made_ports(1), compiled("wide", MTU)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with Bmv2Switch(1, ports, program, LOG, False) as tor:
            os.write(writing, str(tor.pid).encode())
            signal.pause()
    pid = os.read(reading, 16).decode()
    running = _is_switch(pid)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _await(lambda: not _is_switch(pid), "the switch ends")
    return running


def main(case: str, *arguments: str) -> None:
    private_mounts("packets")
    print(MARK + json.dumps(globals()[case](*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
