"""The server of the page: on loopback only; requests that access refuses are refused before the testbed is
queried. It sleeps while no viewer is connected.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flask import Flask, Response, request
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.records.store import Store
from testbed.webpage import metrics, page
from testbed.webpage.access import Access, lookers, policy_of
from testbed.webpage.actions import PageActions
from testbed.webpage.connections import LOOPBACK, NOT_KNOWN, require_owners, uid_of
from testbed.webpage.source import PageSource

WAKES_S = 3600.0  # interval of checks whether to end; a signal ends it at once
ASKS_S = 5.0  # time for a connection to send its request
ANSWERED_S = 120.0  # for its body, and for sending each part of the answer: some viewers have slow lines
MOST_OWN = 64  # simultaneous connections
MOST_OF_OTHERS = 8
ASSETS = Path(__file__).parent / "assets"


class PageHandler(WSGIRequestHandler):
    """Writes errors to the terminal, but neither requests nor time-outs of requests."""

    timeout = ASKS_S

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def log_error(self, format: str, *arguments: Any) -> None:
        if not any(isinstance(argument, TimeoutError) for argument in arguments):
            super().log_error(format, *arguments)

    def run_wsgi(self) -> None:
        self.connection.settimeout(ANSWERED_S)
        super().run_wsgi()


class PageServer(ThreadedWSGIServer):
    """A server with a thread for each connection, and a limited number of connections. Other users of this
    machine, who may read the metrics, have a few connections of their own, and use none of its user's.
    """

    def __init__(self, port: int, descriptor: int) -> None:
        super().__init__(LOOPBACK, port, Flask("nothing yet"), PageHandler, fd=descriptor)
        self._own = lookers(os.geteuid())
        self._lock = threading.Lock()
        self._held: dict[Any, bool] = {}  # connection -> whether it is its own user's

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a connection is within the limit; otherwise it is closed at once."""
        is_own = _asker(client_address[1], self.port) in self._own
        with self._lock:
            has_place = list(self._held.values()).count(is_own) < (MOST_OWN if is_own else MOST_OF_OTHERS)
            if has_place:
                self._held[request] = is_own
        return has_place

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._lock:
            self._held.pop(request, None)


def serve(runtime: Runtime, store: Store | None, port: int, ready: Callable[[Access], None]) -> None:
    """Serve until interrupted. `ready` is called with the port and token. RequestError for a port in use."""
    server = listening(port)
    access = Access(server.port, lookers(os.geteuid()))
    source = PageSource(runtime)
    actions = PageActions(runtime, Caller.of_this_process().uid)
    app = page.made(source, store, access, actions, str(ASSETS))
    guard(app.server, access, app.csp_hashes, source)
    server.app = app.server
    ready(access)
    try:
        server.serve_forever(poll_interval=WAKES_S)
    finally:
        server.server_close()


def listening(port: int) -> PageServer:
    """Return a server that listens on loopback (port 0: any free port). RequestError for a port in use,
    HostError if the kernel does not report connections' owners.
    """
    require_owners()
    try:
        taken = socket.create_server((LOOPBACK, port))  # werkzeug's own error has more than a line
    except OSError as error:
        raise RequestError(f"--port {port}: {os.strerror(error.errno or 0)}") from error
    with taken:  # the server has a descriptor of its own
        number = taken.getsockname()[1]
        return PageServer(number, taken.fileno())


def guard(server: Flask, access: Access, hashes: Callable[[], Sequence[str]], source: PageSource) -> None:
    """Refuse the requests that access refuses; add metrics, and the headers that enforce the rules in
    browsers.
    """

    @server.before_request
    def check() -> Response | None:
        uid = (
            None if request.path == metrics.PATH else _asker(int(request.environ["REMOTE_PORT"]), access.port)
        )
        why = access.refusal(request.host, request.headers.get("Origin"), uid)
        return None if why is None else Response(f"refused: {why}\n", 403, mimetype="text/plain")

    @server.get(metrics.PATH)
    def tell() -> Response:
        content, kind = metrics.exposition(source.look(), request.headers.get("Accept", ""))
        return Response(content, content_type=kind)

    policy: list[str] = []
    lock = threading.Lock()

    @server.after_request
    def hold(response: Response) -> Response:
        with lock:
            if not policy:
                policy.append(policy_of(hashes()))
        response.headers["Content-Security-Policy"] = policy[0]
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response


def _asker(peer_port: int, port: int) -> int:
    try:
        return uid_of(peer_port, port)
    except OSError:  # no free descriptor, or no answer of the kernel
        return NOT_KNOWN
