"""The periodic checks of a job's program at its places while its processes run, in a thread, if its grant has
them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from testbed.aggregation.program import Clock, Findings
from testbed.errors import TestbedError
from testbed.plugins.user_class import in_a_line


class Looks:
    """The checks of one attempt, in a thread from `start` on, which waits `every_s()` before each. `look`
    reads the places; it gets a clock of the seconds since the attempt began. `tell` gets its findings if
    these have lines. `failed` gets the reason if the checks must stop. A context manager.
    """

    def __init__(
        self,
        every_s: Callable[[], float],
        look: Callable[[Clock], Findings],
        tell: Callable[[Findings], object],
        failed: Callable[[str], object],
    ) -> None:
        self._every_s, self._look, self._tell, self._failed = every_s, look, tell, failed
        self._began = time.monotonic()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the checks."""
        thread = threading.Thread(target=self._run, name="looks for stragglers", daemon=True)
        thread.start()
        self._thread = thread

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._every_s()):
                with contextlib.suppress(TestbedError):  # a switch ended; its jobs are notified otherwise
                    if (findings := self._look(self._elapsed_s)).lines:
                        self._tell(findings)
        except OSError as error:
            self._failed(f"look for stragglers: {error.strerror or error}")
        except Exception as error:  # a user's own program may raise anything
            self._failed(f"look for stragglers: {in_a_line(error)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
