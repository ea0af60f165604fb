"""Both sockets under whatever is sent to them, or not read from them: the daemon answers on, and the job
under way knows nothing of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError
from tests.limits import CALL_S
from tests.privileged.commands import WAIT_S, Testbed, bounded, open_folder, pid_of, running, start, wait_for

pytestmark = [pytest.mark.needs("xdp", "ovs")]

SEED, ROUNDS = 11, 400
OWNER = 54321
FLOOD = "while True: print('x' * 200)\n"
PATIENT = """
import os, sys, time
print("under way", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("done", flush=True)
"""
# A request of each kind that would be understood; `down` is left out, and nothing here names the job under
# way.
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "daemon": [
        {"op": "status"},
        {
            "op": "run",
            "script": "/dev/null",
            "arguments": ["a"],
            "sync": "ring",
            "place": "u1:1",
            "cwd": "/",
            "environ": {},
        }
        | {"logs": None, "limit_s": 1.0, "restarts": 0, "series": False, "preload": False, "uid": OWNER},
        {"op": "submit", "cwd": "/", "environ": {}, "json": None, "wait": False, "uid": OWNER}
        | {"submission": {"jobs": [{"script": "x", "iterations": 1, "megabytes": 1.0, "workers": 99}]}},
        {"op": "cancel", "jobs": [7], "reason": "fuzz", "uid": OWNER},
        {"op": "stop", "job": 999, "reason": "fuzz"},
        {
            "op": "fault",
            "action": "list",
            "links": ["u1h1"],
            "direction": "up",
            "fault": {"loss": 0.0, "seed": 1},
        },
        {
            "op": "capture",
            "link": "u1h1",
            "count": 1,
            "seconds": 0.01,
            "output": "/nowhere/x.pcap",
            "uid": OWNER,
        },
    ],
    "controller": [
        {"op": "ready"},
        {"op": "circuits"},
        {"op": "plan", "demands": [["u1", "u2"]]},
        {"op": "apply", "circuits": [["u1o1", "u2o1"]]},
        {"op": "request", "demands": [["u1", "u2"]]},
        {"op": "tree", "root": "u1", "members": ["u1", "u2"]},
        {"op": "resettle", "unit": "u9"},
        {"op": "history"},
    ],
}
ODD: list[Any] = [
    *(None, True, -1, 0, 2**31, 2**64, 10**40, 0.5, 1e308),
    *("", "\0", "\ud800", "x" * 10_000, "../../etc/shadow", "u0", "u1o99", "NaN", "🙂"),
    *([], {}, [[]], [None], [[None, None]], [["u1"]], {"a": {"b": []}}, ["u1", "u1"], [["u1", "u1"]]),
]  # fmt: skip
# A defect shows the name of Python's exception.
DEFECT = re.compile(
    r"\b(Key|Type|Value|Attribute|Index|Assertion|Recursion|Overflow|UnicodeEncode|Runtime)Error\b"
)


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running("default", {"SUDO_UID": str(OWNER)}) as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as made:
        (made / "flood.py").write_text(FLOOD)
        (made / "patient.py").write_text(PATIENT)
        yield made


@pytest.fixture
def under_way(testbed: Testbed, folder: Path) -> Iterator[None]:
    """A job that must be there still at the end of the test, and then ends well."""
    argv = [
        "--name",
        testbed.name,
        "--sync",
        "ring",
        "--place",
        "u2:1",
        str(folder / "patient.py"),
        str(folder / "go"),
    ]
    with bounded(start("testbed.run", *argv, env={"SUDO_UID": str(OWNER)}), 3 * WAIT_S) as client:
        assert client.stdout
        assert client.stdout.readline() == "[u2h1] under way\n"
        before = restarts(testbed)
        yield
        assert client.poll() is None
        (folder / "go").touch()
        rest, errors = client.communicate(timeout=WAIT_S)
        assert (client.returncode, rest) == (0, "[u2h1] done\n"), errors
    assert restarts(testbed) == before


def restarts(testbed: Testbed) -> tuple[str, int]:
    answer = rpc.call(Runtime.of(testbed.name).socket, "status")
    return answer["state"], answer["controller"]["restarts"]


def socket_of(testbed: Testbed, name: str) -> Path:
    runtime = Runtime.of(testbed.name)
    return runtime.socket if name == "daemon" else runtime.controller_socket


def exchanged(path: Path, data: bytes) -> dict[str, Any]:
    """The last line of the answer to these bytes; the server then closes the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_S)
        connection.connect(str(path))
        with suppress(BrokenPipeError, ConnectionResetError):  # it has refused by now
            connection.sendall(data)
        with connection.makefile("rb") as lines:
            return dict(json.loads(lines.readlines()[-1]))


def mutated(request: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return the request with one to three values in place of others, at any depth, or keys gone."""
    made = json.loads(json.dumps(request))
    for _ in range(random.randint(1, 3)):
        at = made
        while (
            inner := [value for value in at.values() if isinstance(value, dict) and value]
        ) and random.random() < 0.5:
            at = random.choice(inner)
        if key := random.choice([key for key in at if key != "op"] or [""]):
            if random.random() < 0.2:
                del at[key]
            else:
                at[key] = random.choice(ODD)
    return dict(made)


@pytest.mark.parametrize("name", REQUESTS)
def test_odd_requests_get_one_clear_line(testbed: Testbed, under_way: None, name: str) -> None:
    random, path = Random(SEED), socket_of(testbed, name)
    for _ in range(ROUNDS):
        request = mutated(random.choice(REQUESTS[name]), random)
        answer = exchanged(path, json.dumps(request).encode() + b"\n")
        if not answer["ok"]:
            assert answer["exit_code"] in (1, 2, 3)
            assert "\n" not in answer["error"], request
            assert not DEFECT.search(answer["error"]), (request, answer)


@pytest.mark.parametrize("name", REQUESTS)
def test_bytes_that_are_no_request(testbed: Testbed, under_way: None, name: str) -> None:
    random, path = Random(SEED), socket_of(testbed, name)
    valid = [json.dumps(request).encode() for request in REQUESTS[name]]
    for _ in range(ROUNDS):
        data = bytearray(random.choice(valid))
        for _ in range(random.randint(1, 8)):
            data[random.randrange(len(data))] = random.choice(b'{}[]",:\\\x00\xff\x1b\t01eEn')
        assert isinstance(exchanged(path, bytes(data.replace(b"\n", b" ")) + b"\n")["ok"], bool)
    for data in (
        b"\n",
        b"[" * 900_000 + b"\n",
        b'{"op":' * 100_000 + b"\n",
        b"\x00" * (3 << 20),
        b'"' + b"a" * (3 << 20),
    ):
        answer = exchanged(path, data)
        assert answer["exit_code"] == 2
        assert answer["error"].startswith("request not understood: ")


@pytest.mark.parametrize("name", REQUESTS)
def test_half_sent_never_read_and_too_many(testbed: Testbed, under_way: None, name: str) -> None:
    path, pid = (
        socket_of(testbed, name),
        pid_of(testbed.pid, "testbed.daemon.process" if name == "daemon" else "controller"),
    )
    before = len(os.listdir(f"/proc/{pid}/task"))
    with ExitStack() as stack:
        for number in range(600):
            held = stack.enter_context(socket.socket(socket.AF_UNIX))
            with suppress(BrokenPipeError, ConnectionResetError):  # refused, or made room
                held.connect(str(path))
                held.sendall((b"", b'{"op": "st', b'{"op": "status"}\n', b'{"op": "history"}\n')[number % 4])
        threads = len(os.listdir(f"/proc/{pid}/task")) - before
        assert threads < 300, "connections are bounded, and a thread or two serve each"
        # those that wait for their own clients make room for who is served
        wait_for(lambda: serves(path, "status" if name == "daemon" else "circuits"), "it serves others")


def serves(path: Path, operation: str) -> bool:
    try:
        return bool(rpc.call(path, operation))
    except TestbedError:
        return False


def test_connections_leave_nothing(testbed: Testbed) -> None:
    """No thread, no descriptor."""
    runtime = Runtime.of(testbed.name)
    pid = pid_of(testbed.pid, "testbed.daemon.process")

    def held() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))

    rpc.call(runtime.socket, "status")
    before = held()
    for data in (b"", b"{", b'{"op": "status"}\n', b"nothing\n") * 25:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(runtime.socket))
            connection.sendall(data)
    wait_for(lambda: held() <= before, f"as many descriptors and threads as before, {before}")


@pytest.mark.parametrize("ended_by", ["its limit", "who asks"])
def test_a_client_that_is_stopped_holds_up_nothing(testbed: Testbed, folder: Path, ended_by: str) -> None:
    """The client is stopped as by Ctrl-Z, or by `| less`."""
    log = folder / "logs/worker-0.log"
    log.parent.mkdir()
    os.chown(log.parent, OWNER, OWNER)
    limit = ["--timeout", "1"] if ended_by == "its limit" else ["--logs", str(log.parent)]
    argv = ["--name", testbed.name, "--sync", "ring", "--place", "u1:1", *limit, str(folder / "flood.py")]
    daemon = Runtime.of(testbed.name)
    with bounded(start("testbed.run", *argv, env={"SUDO_UID": str(OWNER)}), 2 * WAIT_S) as client:
        assert client.stdout
        assert client.stdout.readline().startswith("[u1h1] x")
        client.send_signal(signal.SIGSTOP)
        if ended_by == "who asks":
            (job,) = rpc.call(daemon.socket, "status")["jobs"]
            wait_for(
                lambda: log.stat().st_size > 8 << 20, "the job prints on, more than is kept for its client"
            )
            rpc.call(daemon.socket, "stop", job=job["id"], reason="asked to", uid=OWNER)
        wait_for(lambda: rpc.call(daemon.socket, "status")["jobs"] == [], "the job ends")
        client.send_signal(signal.SIGCONT)
        assert client.stderr
        shown, errors = (
            client.stdout.read(),
            client.stderr.read(),
        )  # communicate() would lose what readline() has read ahead
        assert client.wait(CALL_S) == 1
    assert ("not done after 1 s" if ended_by == "its limit" else "asked to") in errors.splitlines()[-1]
    if ended_by == "who asks":
        missed = re.findall(
            r"^testbed run: job \d+: (\d+) lines of output \([0-9.]+ MB\) came faster than they were read"
            rf" and are not shown; see the log: {log.parent}$",
            errors,
            re.MULTILINE,
        )
        assert missed, errors
        assert sum(map(int, missed)) + len(shown.splitlines()) + 1 == len(log.read_text().splitlines())
