"""The watch of a worker over its own script: a thread that tells the job board at which line the script is,
and leaves the stacks of all threads where the launcher asks for them, or where the script ends by an error.

It must stay light: it starts at `import torch`, and looks twice a second. It learns nothing that a thread
without the interpreter's lock could not say later: while another thread holds that, the script stands still.
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
WAITED_S = 2.0  # for a call, until its line is told
ALL_ASK_S = 3.0  # for all workers to ask for a call that some ask for
THEIR_LINES_S = 2.0  # for the lines of those who have: each looks once a second whether others doubt
MOST_BYTES = 64 << 10  # of a worker's stacks
_MOST_FRAMES = 100  # of a thread, the innermost
_BUSY_NS = 2_000_000  # of a core, in a period: a thread that waits takes less
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
    """Return whether code is of the script, and not of Python, of what is installed, or of this project."""
    if file.startswith(("<", *_LIBRARIES, *_PROJECTS)) or os.path.dirname(file) == _HERE:
        return False
    return _INSTALLED.isdisjoint(Path(file).parts)


def place_of(frame: FrameType | None) -> tuple[str, str]:
    """Return the innermost line of a stack that is the script's own, `val.py:14`, and the function of
    torch.distributed that it called there; empty where there is none.
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
    """Return the same of the script's thread: of one that is in torch.distributed, if any is, else of the
    main one.
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
    """The watch of one worker. Its methods are called by any thread."""

    def __init__(self, job: JobEnv) -> None:
        self._job, self._pid = job, os.getpid()
        self._tables = None if job.board.calls is None else Tables(job.board.calls)
        self._writing = threading.Lock()  # of the table's texts
        self._leaving = threading.Lock()  # the stacks
        self._has_left = False
        self._seen = "", ""
        self._meets = ""
        self._ran_ns = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="inc-watch", daemon=True)

    def start(self) -> None:
        """Begin to look, until the process ends."""
        self._thread.start()
        atexit.register(self.stop)
        theirs = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if os.getpid() == self._pid:
                with contextlib.suppress(Exception):  # the error itself is what the user needs
                    self.leave_stacks(error)
            theirs(kind, error, trace)

        sys.excepthook = hook

    def stop(self) -> None:
        """End the thread, before the interpreter does."""
        if os.getpid() == self._pid:
            self._end.set()
            self._thread.join(2 * PERIOD_S)

    def look(self, now_ns: int) -> None:
        """Tell the line that the script is at, and the line of the call that it waits for."""
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
        if self._meets and inside != _MEETING:  # the group is there, or will not be
            self.say_meets("")
        awaited = self._tables.awaited(self._job.rank)
        if awaited is not None and now_ns - awaited[1] > WAITED_S * 1e9:
            self.say_where(awaited[0], line)

    def say_where(self, call: Call, line: str) -> None:
        """Tell the line that a call is waited for at, where that is not told yet."""
        if self._tables is None:
            return
        with self._writing:
            if line and not self._tables.where(self._job.rank, call):
                self._tables.say_where(self._job.rank, call, line)

    def mine(self, asked: Mapping[int, Call]) -> Call | None:
        """Return this worker's call among those of all."""
        return asked.get(self._job.rank)

    def say_meets(self, text: str) -> None:
        """Tell where the script waits for its process group; empty: it waits for none."""
        self._meets = text
        if self._tables is not None:
            with self._writing:
                self._tables.say_meets(self._job.rank, text)

    def leave_stacks(self, error: BaseException | None = None) -> None:
        """Write the stacks of all threads to the worker's file, the first time: what comes later is of its
        end. Raises OSError.
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

    def _look_on(self) -> None:
        while not self._end.wait(PERIOD_S):
            self.look(time.monotonic_ns())
            if self._job.board.asks_for_stacks():
                with contextlib.suppress(OSError):  # the record is without them
                    self.leave_stacks()


_watch: Watch | None = None


def begin() -> None:
    """Begin to watch this process, where it is a worker that is not watched yet."""
    global _watch
    if _watch is not None:
        return
    try:
        job = JobEnv.from_environ()
    except NotInJobError:  # said where the script needs it
        return
    _watch = Watch(job)
    _watch.start()


def say_meets(text: str) -> None:
    """Tell where the script waits for its process group, until it is out of that function; empty: it waits
    for none.
    """
    if _watch is not None:
        _watch.say_meets(text)


def explained(tables: Tables, ranks: Sequence[int], group: int, number: int) -> str:
    """Return the words on the workers of a group that ask for different things in their call of this number
    (calls.disagreement), with their scripts' lines. Takes up to 3 s: they ask at different times, and each
    tells its line when it does. Waits without the interpreter's lock.
    """
    began = time.monotonic()
    asked = tables.asked(ranks, group, number)
    while len(asked) < len(ranks) and time.monotonic() - began < ALL_ASK_S:
        _say_mine(asked)
        time.sleep(_POLL_S)
        asked = tables.asked(ranks, group, number)
    _say_mine(asked)
    deadline = min(began + ALL_ASK_S, time.monotonic() + THEIR_LINES_S)
    while True:
        where = {rank: tables.where(rank, call) for rank, call in asked.items()}
        if all(where.values()) or time.monotonic() >= deadline:
            return calls.disagreement(asked, where)
        time.sleep(_POLL_S)


def _say_mine(asked: Mapping[int, Call]) -> None:
    if _watch is not None and (mine := _watch.mine(asked)) is not None:
        _watch.say_where(mine, present_place()[0])


def stacks(error: BaseException | None = None, but: int | None = None) -> str:
    """Return the stacks of this process's threads, the main one first, and without that of the thread `but`;
    in the main one's place the error that it ends by.
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
    """Return a text of MOST_BYTES at most, without what a terminal would carry out."""
    plain = "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
    data = plain.encode(errors="replace")
    end = b"\n... the rest is left out ...\n"
    return data if len(data) <= MOST_BYTES else data[: MOST_BYTES - len(end)] + end


def _main_thread_ran_ns() -> int:
    """Return how long the main thread has had a core; 0 where the kernel does not say."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/schedstat", "rb") as file:
            return int(file.read().split()[0])
    except (OSError, IndexError, ValueError):
        return 0
