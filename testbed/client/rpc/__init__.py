"""Requests over a unix socket: one JSON object a line. Imports nothing of the project but errors.

A request is {"op": ..., other arguments}. While it is worked on, lines {"event": {...}} may come, one with
"passes": true beside a descriptor (SCM_RIGHTS); descriptors go to clients, and none is taken from them. The
last line is {"ok": true, "result": ...} or {"ok": false, "exit_code": ..., "error": "one line"}, after which
the server closes the connection. One connection carries one request; closing it early tells the handler so.

Who asks is what the kernel says of the connection (peer.py); nothing in a request adds to it. Nobody waits
for a client: what it does not read is kept up to a bound (connection.py), and an event {"missed": {"lines":
..., "bytes": ...}} stands for what was beyond it.
"""

from testbed.client.rpc.client import AbsentError, SilentError, call, require_answer
from testbed.client.rpc.connection import MAX_REQUEST_BYTES, Emit, Handler
from testbed.client.rpc.peer import Peer
from testbed.client.rpc.server import serve

__all__ = [
    "MAX_REQUEST_BYTES",
    "AbsentError",
    "Emit",
    "Handler",
    "Peer",
    "SilentError",
    "call",
    "require_answer",
    "serve",
]
