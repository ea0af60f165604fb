"""The recorder that `python -m tests.bench.walks` installs in a command and its daemon, as `sitecustomize`.

It records each call from a module of the project into another, by thread, until a walk's end is reached: a
worker of the script WALKS_SCRIPT is started, or a message that sets a link's rate goes to the kernel. It uses
only the standard library, and no name of the project but the modules of the two ends, since it also runs in
older commits.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

_ROOT = os.environ.get("WALKS_ROOT", "")
_INTO = os.environ.get("WALKS_INTO", "")
_SCRIPT = os.environ.get("WALKS_SCRIPT", "")
_START = threading.Thread.start
Step = tuple[str, str, str]  # the caller's module, and the module and the function that it called
_steps: dict[int, list[Step]] = {}  # of each thread
_before: dict[int, tuple[list[Step], list[str]]] = {}  # steps and stack that led to the thread's start
_reached: set[str] = set()


def _module(frame: FrameType | None) -> str | None:
    """Return the module of a frame, such as `jobs/life`; None for code outside the project."""
    file = frame.f_code.co_filename if frame else ""
    if not file.startswith(_ROOT):
        return None
    name = file.removeprefix(_ROOT).removesuffix(".py")
    return name.removeprefix("testbed/") if name.startswith(("testbed/", "controller/")) else None


def _stack(frame: FrameType | None) -> list[str]:
    """Return the modules on the call stack, from the outermost, without repetitions in a row."""
    modules: list[str] = []
    while frame is not None:
        module = _module(frame)
        if module is not None and modules[-1:] != [module]:
            modules.append(module)
        frame = frame.f_back
    return modules[::-1]


def _reach(end: str, frame: FrameType) -> None:
    """Write how this thread came to a walk's end, the first time that the end is reached."""
    if end in _reached:
        return
    _reached.add(end)
    thread = threading.get_ident()
    steps, stack = _before.get(thread, ([], []))
    walk = {
        "end": end,
        "at": time.monotonic(),
        "stack": [*stack, *_stack(frame)],
        "steps": [*steps, *_steps.get(thread, [])],
    }
    target = Path(_INTO, f"{os.getpid()}-{end}.json")
    target.with_suffix(".part").write_text(json.dumps(walk))
    target.with_suffix(".part").rename(target)


def _profile(frame: FrameType, event: str, argument: Any) -> None:
    if event == "c_call":
        if getattr(argument, "__name__", "") in ("send", "sendall", "sendmsg"):
            _sends(frame)
        return
    if event != "call":
        return
    module = _module(frame)
    if module is None:
        return
    caller = frame.f_back
    while caller is not None and _module(caller) is None:
        caller = caller.f_back
    origin = _module(caller)
    if origin is not None and origin != module:
        _steps.setdefault(threading.get_ident(), []).append((origin, module, frame.f_code.co_qualname))
    if module == "emulation/spawner" and frame.f_code.co_name == "popen":
        argv = frame.f_locals.get("argv", ())
        if any(str(word).endswith(_SCRIPT) for word in argv):
            _reach("process", frame)


def _sends(frame: FrameType) -> None:
    module = _module(frame)
    if module == "emulation/netlink":
        data = frame.f_locals.get("data", b"")
        if b"tbf\0" in bytes(data):
            stack = _stack(frame)
            _reach("rate asked for" if any("job" in name for name in stack) else "rate configured", frame)
    elif module and "rpc/" in module and "submit" in _stack(frame):
        _reach("request", frame)


def _start(thread: threading.Thread) -> None:
    """Record the steps and stack that led to a thread, and start it."""
    mine = threading.get_ident()
    steps, stack = _before.get(mine, ([], []))
    led: tuple[list[Step], list[str]] = ([], [])  # empty for a request: its walk began in the sending command
    if thread.name != "request":
        led = ([*steps, *_steps.get(mine, [])], [*stack, *_stack(sys._getframe(1))])
    run = thread.run

    def begin() -> None:
        own = threading.get_ident()
        _steps[own] = []  # the kernel reuses the numbers of ended threads
        _before[own] = led
        run()

    thread.run = begin  # type: ignore[method-assign]
    _START(thread)


if _INTO:
    with contextlib.suppress(OSError):
        threading.Thread.start = _start  # type: ignore[method-assign]
        threading.setprofile(_profile)
        sys.setprofile(_profile)
