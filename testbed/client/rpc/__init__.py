"""Requests over a unix socket, one JSON object per line. Imports nothing of the project but errors.

A request is {"op": ..., other arguments}. While the server works on it, it may send lines {"event": {...}};
an event with "passes": true comes with a descriptor (SCM_RIGHTS). Descriptors go to clients only; the server
accepts none. The last line is {"ok": true, "result": ...} or {"ok": false, "exit_code": ..., "error": "one
line"}; then the server closes the connection. A connection carries one request; if the client closes it
early, the handler is notified.

The kernel says who asks (peer.py); nothing in a request adds to that. No thread waits for a slow client:
unread output is buffered up to a bound (connection.py), and an event {"missed": {"lines": ..., "bytes": ...}}
replaces the output beyond it.
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
