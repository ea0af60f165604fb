"""The rules of who may look at the page and who may act, and a server that holds to them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import web
from testbed.client import environment
from testbed.errors import HostError, RequestError
from testbed.webpage import connections, page, serving
from testbed.webpage.access import Access, lookers
from testbed.webpage.actions import PageActions
from testbed.webpage.connections import LOOPBACK, NOT_KNOWN, require_owners, uid_of
from testbed.webpage.serving import ASSETS, guard, listening
from tests.unit.page_world import World

HERE = f"{LOOPBACK}:8050"
ACCESS = Access(8050, frozenset((1000, 0)), "secret")


@pytest.mark.parametrize("host", [HERE, "localhost:8050"])
@pytest.mark.parametrize("uid", [1000, 0, None])
def test_the_page_answers_to_its_own_names_and_users(host: str, uid: int | None) -> None:
    assert ACCESS.refusal(host, None, uid) is None
    assert ACCESS.refusal(host, f"http://{host}", uid) is None


@pytest.mark.parametrize(
    ("host", "origin", "uid", "says"),
    [
        ("elsewhere.example:8050", None, 1000, "host 'elsewhere.example:8050' is not this page's"),
        (f"{LOOPBACK}:80", None, 1000, "is not this page's"),
        (LOOPBACK, None, 1000, "is not this page's"),
        ("", None, 1000, "is not this page's"),
        (HERE, "http://elsewhere.example", 1000, "is another page's"),
        (HERE, "null", 1000, "is another page's"),
        (HERE, f"https://{HERE}", 1000, "is another page's"),
        (HERE, None, 1001, "user id 1001 may not look"),
        (HERE, None, -1, "user id -1 may not look"),
    ],
)
def test_everything_else_is_refused(host: str, origin: str | None, uid: int, says: str) -> None:
    assert says in str(ACCESS.refusal(host, origin, uid))


@pytest.mark.parametrize("token", ["", "secre", "secret ", "Secret", "sécret", None, 3, ["secret"]])
def test_nobody_acts_without_the_token(token: object) -> None:
    assert not ACCESS.may_act(token)
    assert ACCESS.may_act("secret")


def test_tokens_cannot_be_guessed() -> None:
    tokens = {Access(1, frozenset()).token for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32


def test_the_kernel_says_whose_a_connection_is() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK, port)) as client:
            assert uid_of(client.getsockname()[1], port) == os.getuid()
            assert uid_of(client.getsockname()[1], port ^ 1) == NOT_KNOWN
            assert uid_of(port, client.getsockname()[1] ^ 1) == NOT_KNOWN, "the server's own, which listens"


@pytest.mark.parametrize("closes_first", ["client", "server"])
def test_a_connection_that_was_closed_is_nobody_s(closes_first: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection((LOOPBACK, port))
        peer_port = client.getsockname()[1]
        with server.accept()[0] as accepted:
            if closes_first == "server":
                accepted.close()
            client.close()
            assert uid_of(peer_port, port) == NOT_KNOWN, "the kernel has it as root's"
        assert uid_of(peer_port, port) == NOT_KNOWN


def test_a_kernel_that_does_not_say_who_connects_is_a_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    require_owners()
    monkeypatch.setattr(connections, "_BY_FAMILY", 0xFF)  # no request's number
    with pytest.raises(HostError, match="sudo modprobe tcp_diag"):
        require_owners()


# ---- a server ----


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[World, Access]]:
    """The page over made-up answers, on a port of its own."""
    world, server = World(tmp_path), listening(0)
    access = Access(server.port, lookers(os.geteuid()))
    actions = PageActions(world.source._runtime, os.getuid(), world.call)
    app = page.made(world.source, None, access, actions, str(ASSETS))
    guard(app.server, access, app.csp_hashes, world.source)
    server.app = app.server
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield world, access
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def idle(access: Access, count: int) -> Iterator[list[socket.socket]]:
    """Connections that ask for nothing."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((LOOPBACK, access.port), timeout=20))
            for _ in range(count)
        ]


def test_connections_that_ask_for_nothing_are_closed(
    served: tuple[World, Access], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, access = served
    monkeypatch.setattr(serving.PageHandler, "timeout", 0.05)
    with idle(access, 1) as (silent,):
        assert silent.recv(1) == b""
    assert caplog.records == []


def test_another_user_s_connections_take_no_place_of_the_page_s_own(
    served: tuple[World, Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, access = served
    monkeypatch.setattr(serving.PageHandler, "timeout", 60.0)
    with monkeypatch.context() as patch:
        patch.setattr(serving, "uid_of", lambda *_: 4_000_000)
        with idle(access, serving.MOST_OF_OTHERS + 1) as connections:
            assert connections[-1].recv(1) == b"", "one too many is closed at once"
            patch.undo()
            assert ask(access, "/")[0] == 200
            assert ask(access, "/metrics")[0] == 200
            connections[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
            assert connections[0].recv(12) == b"HTTP/1.1 403", "the others are served still"


def test_connections_that_were_closed_take_no_place_of_the_page_s_own() -> None:
    server = listening(0)
    try:
        for _ in range(2 * serving.MOST_OWN):
            socket.create_connection((LOOPBACK, server.port)).close()
            server.verify_request(*server.get_request())
        assert list(server._held.values()) == [False] * serving.MOST_OF_OTHERS
        with socket.create_connection((LOOPBACK, server.port)):
            assert server.verify_request(*server.get_request()), "the user's own"
    finally:
        for request in tuple(server._held):
            server.shutdown_request(request)
        server.server_close()


def test_places_are_free_again_when_connections_end(
    served: tuple[World, Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, access = served
    monkeypatch.setattr(serving, "MOST_OWN", 1)
    with idle(access, 2) as (_, second):
        assert second.recv(1) == b""
    for _ in range(1000):
        with contextlib.suppress(ConnectionError):
            assert ask(access, "/metrics")[0] == 200
            return
    pytest.fail("no place was free again")


def ask(access: Access, path: str, body: Any = None, **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(LOOPBACK, access.port, timeout=60)
    if body is not None:
        headers["Content-Type"] = "application/json"
    method = "GET" if body is None else "POST"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text, dict(answer.getheaders())


@pytest.mark.parametrize("path", ["/", "/metrics", "/_dash-layout", "/assets/page.css", "/none"])
def test_a_name_that_was_made_to_lead_here_is_refused_everywhere(
    served: tuple[World, Access], path: str
) -> None:
    world, access = served
    status, text, _ = ask(access, path, Host="elsewhere.example")
    assert (status, text.startswith("refused: host 'elsewhere.example'")) == (403, True)
    assert world.asked == []


def test_the_page_brings_all_that_it_needs(served: tuple[World, Access]) -> None:
    _, access = served
    status, text, headers = ask(access, "/")
    assert status == 200
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe-eval" not in headers["Content-Security-Policy"]
    sources = [part.split('"')[0] for part in text.split('src="')[1:]]
    sources += [part.split('"')[0] for part in text.split('href="')[1:]]
    assert sources
    assert all(source.startswith("/") and not source.startswith("//") for source in sources)
    assert ask(access, "/assets/page.css")[0] == 200


def act(access: Access, what: str, of: str, token: str, clicks: int | None = 1) -> str | None:
    """Return the page's words when somebody presses a button with that token in the address; None where
    there are none.
    """
    _, text, _ = ask(access, "/_dash-dependencies")
    (callback,) = [each for each in json.loads(text) if each["output"] == "done.children"]
    button = {"act": what, "of": of}
    pressed = {"id": button, "property": "n_clicks", "value": clicks}
    body = {
        "output": callback["output"],
        "outputs": {"id": "done", "property": "children"},
        "inputs": [[pressed] if json.loads(each["id"])["act"] == what else [] for each in callback["inputs"]],
        "changedPropIds": [f"{json.dumps(button, separators=(',', ':'))}.n_clicks"],
        "state": [
            {"id": "location", "property": "hash", "value": f"#token={token}"},
            {"id": "force", "property": "value", "value": []},
        ],
    }
    status, text, _ = ask(access, "/_dash-update-component", body)
    assert status in (200, 204), text
    done = json.loads(text)["response"].get("done") if text else None
    return str(done["children"]) if done else None


def join(access: Access, first: str | None, second: str, token: str) -> Any:
    """Return the answer to a press on a port's button, `first` being picked."""
    _, text, _ = ask(access, "/_dash-dependencies")
    (callback,) = [each for each in json.loads(text) if "picked.data" in each["output"]]
    ids = [{"act": "port", "of": port} for port in ("u1o1", "u1o2", "u2o1")]
    words = callback["output"].strip(".").split("...")
    body = {
        "output": callback["output"],
        "outputs": [
            {"id": "done", "property": words[0].partition(".")[2]},
            {"id": "picked", "property": "data"},
            [{"id": each, "property": "className"} for each in ids],
        ],
        "inputs": [[{"id": each, "property": "n_clicks", "value": 1} for each in ids]],
        "changedPropIds": [f'{{"act":"port","of":"{second}"}}.n_clicks'],
        "state": [
            [{"id": each, "property": "id", "value": each} for each in ids],
            {"id": "picked", "property": "data", "value": first},
            {"id": "location", "property": "hash", "value": f"#token={token}"},
            {"id": "force", "property": "value", "value": []},
        ],
    }
    status, text, _ = ask(access, "/_dash-update-component", body)
    assert status == 200, text
    return json.loads(text)["response"]


def test_without_the_token_nothing_is_asked_of_the_testbed(served: tuple[World, Access]) -> None:
    world, access = served
    for token in ("", "guessed", access.token[:-1]):
        for what, of in (("end", "7"), ("clear", "u1o1-u2o1")):
            assert str(act(access, what, of, token)).startswith("refused: the page's")
        (text,) = join(access, "u1o1", "u2o1", token)["done"].values()
        assert text.startswith("refused: the page's")
    assert world.asked == []


def test_a_table_that_is_made_anew_presses_no_button(served: tuple[World, Access]) -> None:
    world, access = served
    assert act(access, "end", "7", access.token, clicks=None) is None
    assert world.asked == []


def test_two_ports_that_are_pressed_are_joined(served: tuple[World, Access]) -> None:
    world, access = served
    first = join(access, None, "u1o1", access.token)
    assert [*first["done"].values()] == ["u1o1 and ..."]
    assert first["picked"]["data"] == "u1o1"
    classes = {key: value["className"] for key, value in first.items() if key.startswith("{")}
    assert [name for name in classes.values() if name == "act picked"] == ["act picked"]
    again = join(access, "u1o1", "u1o1", access.token)
    assert again["picked"]["data"] is None, "pressed twice, it is no longer picked"
    assert world.asked == []
    joined = join(access, "u1o1", "u2o1", access.token)
    assert joined["picked"]["data"] is None
    assert [*joined["done"].values()] == ["nothing had to change"]
    added = {"force": False, "action": "add", "circuits": [["u1o1", "u2o1"]]}
    assert world.asked == [("circuits", added)]


def test_with_it_the_commands_requests_are_sent(tmp_path: Path) -> None:
    world = World(tmp_path)
    sent: list[tuple[str, dict[str, Any]]] = []

    def call(path: Path, op: str, timeout_s: float = 0.0, **arguments: Any) -> Any:
        sent.append((op, arguments))
        if op == "circuits":
            return {"event": None, "lost": [{"job": 7, "circuits": [], "cut_off": []}]}
        return world.status if op == "status" else None

    actions = PageActions(world.source._runtime, 1000, call)
    assert actions.light("u1o2", "u2o2", True) == "nothing had to change; job 7 lost circuits"
    actions.clear("u1o1-u2o1", False)
    assert actions.end_job("7") == "job 7 is asked to end"
    assert [op for op, _ in sent] == ["circuits", "circuits", "status", "stop"]
    assert sent[0][1] == {"action": "add", "force": True, "circuits": [["u1o2", "u2o2"]]}
    assert sent[1][1] == {"action": "remove", "force": False, "circuits": [["u1o1", "u2o1"]]}
    for wrong in ("all", "9" * 5000):
        with pytest.raises(RequestError, match="the number of a job is accepted"):
            actions.end_job(wrong)


def test_metrics_come_in_the_format_that_is_asked_for(served: tuple[World, Access]) -> None:
    _, access = served
    assert "text/plain" in ask(access, "/metrics")[2]["Content-Type"]
    accept = "application/openmetrics-text; version=1.0.0"
    status, text, headers = ask(access, "/metrics", Accept=accept)
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")


# ---- the command ----


def test_a_port_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        assert environment.exit_code("testbed web", web.main, ["--name", "absent", "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"testbed web: --port {port}: Address already in use\n"


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none_is_one_line(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert environment.exit_code("testbed web", web.main, ["--port", port]) == 2
    assert capsys.readouterr().err == f"testbed web: --port {port}: 0 to 65535 are accepted\n"


def test_it_needs_no_root_and_takes_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "65534")
    assert environment.exit_code("testbed web", web.main, []) == 2
    assert "needs no root: run it as nobody, without sudo" in capsys.readouterr().err
