"""The server of the page: loopback alone, what access refuses is refused, and no request is asked of anybody
else. It waits in the kernel while nobody looks.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flask import Flask, Response, request
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.records.store import Store
from testbed.webpage import metrics, page
from testbed.webpage.access import LOOPBACK, Access, lookers, policy_of, uid_of
from testbed.webpage.actions import PageActions
from testbed.webpage.source import PageSource

WAKES_S = 3600.0  # to see whether it is to end, which a signal says at once
ASSETS = Path(__file__).parent / "assets"


class QuietHandler(WSGIRequestHandler):
    """Requests are not written to the terminal; errors are."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def serve(runtime: Runtime, store: Store | None, port: int, ready: Callable[[Access], None]) -> None:
    """Serve until interrupted. `ready` hears port and token. RequestError for a port that is taken."""
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


def listening(port: int) -> BaseWSGIServer:
    """Return a server that listens on loopback, 0: on any port that is free."""
    try:
        taken = socket.create_server((LOOPBACK, port))  # werkzeug's own says more than a line
    except OSError as error:
        raise RequestError(f"--port {port}: {os.strerror(error.errno or 0)}") from error
    with taken:  # the server has a descriptor of its own
        number = taken.getsockname()[1]
        app = Flask("nothing yet")
        return make_server(
            LOOPBACK, number, app, threaded=True, request_handler=QuietHandler, fd=taken.fileno()
        )


def guard(server: Flask, access: Access, hashes: Callable[[], Sequence[str]], source: PageSource) -> None:
    """Refuse what access refuses, and add metrics, and the headers by which browsers hold to the rules."""

    @server.before_request
    def check() -> Response | None:
        uid = None if request.path == metrics.PATH else _asker(request.environ, access.port)
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


def _asker(environ: dict[str, Any], port: int) -> int:
    return uid_of(int(environ["REMOTE_PORT"]), port)
