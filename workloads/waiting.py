"""Watch a worker's own script. A thread records on the job board which line the script is at. It writes the
stacks of all threads when the launcher requests them; the stacks are also written when the script ends with
an error.

This module must load fast: it is imported at `import torch`. The thread looks twice a second. It needs the
interpreter's lock, and misses nothing by that: while another thread holds the lock, the script does not move.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType

from testbed.wire import calls
from testbed.wire.calls import Call, Tables
from workloads.job_env import JobEnv, NotInJobError

PERIOD_S = 0.5
WAITED_S = 2.0  # for a call, before its line is recorded
ALL_ASK_S = 3.0  # for all workers to make a call that some have made
THEIR_LINES_S = 2.0  # for the lines of those that have: each checks for doubts once a second
MOST_BYTES = 64 << 10  # size of a worker's stacks
_MOST_FRAMES = 100  # of a thread, innermost
_BUSY_NS = 2_000_000  # core time in a period: a waiting thread uses less
_POLL_S = 0.02

_HERE = os.path.dirname(os.path.abspath(__file__))
_PROJECTS = (f"{_HERE}/native/", f"{os.path.dirname(_HERE)}/testbed/")
_LIBRARIES = tuple(
    {f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_MEETING = "init_process_group"
_COLLECTIVES = os.path.join("torch", "distributed", "distributed_c10d.py")


@functools.cache
def is_scripts(file: str) -> bool:
    """Return whether a source file belongs to the script, not to Python, an installed package or this
    project.
    """
    if file.startswith(("<", *_LIBRARIES, *_PROJECTS)) or os.path.dirname(file) == _HERE:
        return False
    return _INSTALLED.isdisjoint(Path(file).parts)


def place_of(frame: FrameType | None) -> tuple[str, str]:
    """Return the innermost line of a stack that belongs to the script, `val.py:14`, and the function of
    torch.distributed that it called there; empty strings where there is none.
    """
    inside = ""
    while frame is not None:
        code = frame.f_code
        if is_scripts(code.co_filename):
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}", inside
        if code.co_filename.endswith(_COLLECTIVES):
            inside = code.co_name
        frame = frame.f_back
    return "", inside


def present_place() -> tuple[str, str]:
    """Return where the script is, as `place_of` does: of a thread that is in torch.distributed, the main one
    first, else of the main thread.
    """
    frames = sys._current_frames()
    main = threading.main_thread().ident
    place = place_of(frames.pop(main, None) if main is not None else None)
    if not place[1]:
        for frame in frames.values():
            other = place_of(frame)
            if all(other):
                return other
    return place


class Watch:
    """The watch over one worker's script. Any thread may call its methods."""

    def __init__(self, job: JobEnv) -> None:
        self._job, self._pid = job, os.getpid()
        self._tables = None if job.board.calls is None else Tables(job.board.calls)
        self._writing = threading.Lock()  # protects the table's texts
        self._leaving = threading.Lock()  # protects the stacks' file
        self._has_left = False
        self._seen = "", ""
        self._meets = ""
        self._ran_ns = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inc-watch", daemon=True)

    def start(self) -> None:
        """Start the thread, which runs until the process ends, and install the hook that writes stacks on an
        error.
        """
        self._thread.start()
        atexit.register(self.stop)
        previous = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if os.getpid() == self._pid:
                with contextlib.suppress(Exception):  # the error itself is what the user needs
                    self.leave_stacks(error)
            previous(kind, error, trace)

        sys.excepthook = hook

    def stop(self) -> None:
        """Stop the thread before the interpreter ends."""
        if os.getpid() == self._pid:
            self._end.set()
            self._thread.join(2 * PERIOD_S)

    def look(self, now_ns: int) -> None:
        """Record the line that the script is at and, if it has waited for a call for WAITED_S, that call's
        line.
        """
        if self._tables is None:
            return
        place = present_place()
        line, inside = place
        ran_ns = _main_thread_ran_ns() if inside else 0
        if place != self._seen or ran_ns - self._ran_ns > _BUSY_NS:
            self._seen = place
            with self._writing:
                self._tables.say_at(self._job.rank, line, inside, now_ns if inside else 0)
        self._ran_ns = ran_ns
        if self._meets and inside != _MEETING:  # the group is made, or has failed
            self.say_meets("")
        awaited = self._tables.awaited(self._job.rank)
        if awaited is not None and now_ns - awaited[1] > WAITED_S * 1e9:
            self.say_where(awaited[0], line)

    def say_where(self, call: Call, line: str) -> None:
        """Record the line at which the script waits for a call, if none is recorded yet."""
        if self._tables is None:
            return
        with self._writing:
            if line and not self._tables.where(self._job.rank, call):
                self._tables.say_where(self._job.rank, call, line)

    def mine(self, asked: Mapping[int, Call]) -> Call | None:
        """Return this worker's call from all workers' calls."""
        return asked.get(self._job.rank)

    def say_meets(self, text: str) -> None:
        """Record where the script waits for its process group; empty: it waits for none."""
        self._meets = text
        if self._tables is not None:
            with self._writing:
                self._tables.say_meets(self._job.rank, text)

    def leave_stacks(self, error: BaseException | None = None) -> None:
        """Write the stacks of all threads to the worker's file, the first time only: later stacks would only
        show the worker's end. Raises OSError.
        """
        path = self._job.stacks
        with self._leaving:
            if self._has_left or path is None:
                return
            self._has_left = True
            who = f"worker {self._job.rank} on {self._job.host}, job {self._job.job_id}"
            at = time.strftime("%Y-%m-%d %H:%M:%S")
            draft = path.with_suffix(".draft")
            try:
                draft.write_bytes(bounded(f"{who}, {at}\n\n{stacks(error, self._thread.ident)}"))
                draft.replace(path)
            except OSError:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)
                raise
            self._job.board.has_left_stacks()

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S):
            self.look(time.monotonic_ns())
            if self._job.board.asks_for_stacks():
                with contextlib.suppress(OSError):  # the job's record then lacks the stacks
                    self.leave_stacks()


_watch: Watch | None = None


def begin() -> None:
    """Start the watch in this process, if it is a worker and not watched yet."""
    global _watch
    if _watch is not None:
        return
    try:
        job = JobEnv.from_environ()
    except NotInJobError:  # raised again when the script makes a group
        return
    _watch = Watch(job)
    _watch.start()


def say_meets(text: str) -> None:
    """Record where the script waits for its process group, until it leaves that function; empty: it waits for
    none.
    """
    if _watch is not None:
        _watch.say_meets(text)


def explained(tables: Tables, ranks: Sequence[int], group: int, number: int) -> str:
    """Describe how the calls of this number of a group's workers differ (calls.disagreement), with the lines
    of their scripts.

    Waits up to 3 s, without the interpreter's lock: workers make the call at different times, and each
    records its line then.
    """
    began = time.monotonic()
    asked = tables.asked(ranks, group, number)
    while len(asked) < len(ranks) and time.monotonic() - began < ALL_ASK_S:
        _record_own_line(asked)
        time.sleep(_POLL_S)
        asked = tables.asked(ranks, group, number)
    _record_own_line(asked)
    deadline = min(began + ALL_ASK_S, time.monotonic() + THEIR_LINES_S)
    while True:
        where = {rank: tables.where(rank, call) for rank, call in asked.items()}
        if all(where.values()) or time.monotonic() >= deadline:
            return calls.disagreement(asked, where)
        time.sleep(_POLL_S)


def _record_own_line(asked: Mapping[int, Call]) -> None:
    if _watch is not None and (mine := _watch.mine(asked)) is not None:
        _watch.say_where(mine, present_place()[0])


def stacks(error: BaseException | None = None, but: int | None = None) -> str:
    """Return the stacks of this process's threads, except those of the thread `but`, the main thread's first.
    If the script ends with `error`, its traceback replaces the main thread's stack.
    """
    frames = sys._current_frames()
    main = threading.main_thread()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    if error is not None:
        parts.append("".join(traceback.format_exception(error)))
        frames.pop(main.ident or 0, None)
    for ident in sorted(frames, key=lambda ident: (ident != main.ident, names.get(ident, ""))):
        if ident not in (but, None):
            lines = traceback.format_stack(frames[ident], _MOST_FRAMES)
            parts.append(f"thread {names.get(ident, ident)}:\n{''.join(lines)}")
    return "\n".join(parts)


def bounded(text: str) -> bytes:
    """Return a text as at most MOST_BYTES bytes, with each unprintable character, which a terminal might
    obey, replaced by `?`.
    """
    plain = "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
    data = plain.encode(errors="replace")
    end = b"\n... the rest is left out ...\n"
    return data if len(data) <= MOST_BYTES else data[: MOST_BYTES - len(end)] + end


def _main_thread_ran_ns() -> int:
    """Return how long the main thread has run on a core; 0 where the kernel does not provide it."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/schedstat", "rb") as file:
            return int(file.read().split()[0])
    except (OSError, IndexError, ValueError):
        return 0
