# ruff: noqa: E402  # eventlet must be silenced and patched before ryu is imported
"""The Ryu application API from ryu 4.34, which runs on green threads.

Green threads belong to the native thread that started them. The rest of the controller uses native threads,
so that nothing delays the thread that watches a dark time. So all of ryu runs on one native thread, and other
threads pass what they send to it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import NoReturn

from testbed.errors import TestbedError

warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")

import eventlet
import eventlet.wsgi
from eventlet.hubs import trampoline

if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
    eventlet.wsgi.ALREADY_HANDLED = object()  # ryu 4.34 imports it; eventlet 0.30.3 removed it

from ryu import cfg
from ryu.base.app_manager import AppManager, RyuApp
from ryu.controller import controller as connections
from ryu.controller import handler, ofp_event
from ryu.ofproto import ofproto_v1_3, ofproto_v1_3_parser

from controller.ryu_api import BACKLOG, Bundling, RyuApi, begin, share_parts

eventlet.listen = partial(eventlet.listen, backlog=BACKLOG)  # which ryu calls by this name

START_S = 30.0


class _RyuThread:
    """The native thread that runs all of ryu, and executes calls passed by other threads, in order."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._wakes, self._wake = socket.socketpair()
        for end in (self._wakes, self._wake):
            end.setblocking(False)
        self._ident = 0

    @property
    def is_current(self) -> bool:
        """Return whether the caller is on that thread."""
        return threading.get_ident() == self._ident

    def start(self, begin: Callable[[], object]) -> None:
        """Run `begin` on the thread, then process calls. TestbedError if `begin` fails or does not return in
        time.
        """
        outcome: SimpleQueue[Exception | None] = SimpleQueue()
        threading.Thread(target=self._run, args=(begin, outcome), name="ryu", daemon=True).start()
        try:
            error = outcome.get(timeout=START_S)
        except Empty as late:
            raise TestbedError(f"start ryu: not done after {START_S:g} s") from late
        if error is not None:
            raise TestbedError(f"start ryu: {type(error).__name__}: {error}") from error

    def call(self, made: Callable[[], object]) -> None:
        """Have the thread execute a call; do not wait for it."""
        self._calls.put(made)
        with contextlib.suppress(BlockingIOError):  # full of unread wake-ups already
            self._wake.send(b"x")

    def _run(self, begin: Callable[[], object], outcome: SimpleQueue[Exception | None]) -> None:
        self._ident = threading.get_ident()
        try:
            begin()
        except Exception as error:
            outcome.put(error)
            return
        outcome.put(None)
        try:
            self._serve()
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # no switch could be reached any more: end, so that the starter restarts this process

    def _serve(self) -> NoReturn:
        while True:
            trampoline(self._wakes.fileno(), read=True)  # ryu's green threads run meanwhile
            with contextlib.suppress(BlockingIOError):
                self._wakes.recv(4096)
            while not self._calls.empty():
                self._calls.get_nowait()()


_RYU = _RyuThread()


share_parts(ofproto_v1_3, ofproto_v1_3_parser)


class _Datapath(Bundling, connections.Datapath):  # type: ignore[misc]  # the library has no types
    """A connection on which any thread may send."""

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        if _RYU.is_current:
            return bool(super().send(buf, close_socket))
        _RYU.call(partial(super().send, buf, close_socket))
        return True


_begin = partial(begin, manager=AppManager, connections=connections, settings=cfg, datapath=_Datapath)


def _listen_and_run(application: str, host: str, port: int) -> None:
    _RYU.start(partial(_begin, application, host, port))


API = RyuApi("ryu", RyuApp, ofp_event, handler, ofproto_v1_3, _listen_and_run)
