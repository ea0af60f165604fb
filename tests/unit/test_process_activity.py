"""The acts of real processes: one that sleeps, is stopped, computes, ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from testbed.jobs.process_activity import doing
from testbed.jobs.watch import Doing
from tests.limits import CALL_S


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + CALL_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_one_that_sleeps_is_stopped_and_ends() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            eventually(lambda: doing(process.pid) == Doing("", 0.0), "it sleeps")
            process.send_signal(signal.SIGSTOP)
            eventually(lambda: doing(process.pid).state == "stopped", "it is stopped")
        finally:
            process.kill()
        process.wait(CALL_S)
    assert doing(process.pid) == Doing()


def test_one_that_computes_on_a_thread_uses_cores() -> None:
    spin = "import threading\ndef spin():\n while True: pass\nthreading.Thread(target=spin).start()"
    with subprocess.Popen([sys.executable, "-c", spin]) as process:
        try:
            eventually(lambda: doing(process.pid).cpu_s > 0.3, "it uses a core")
        finally:
            process.kill()


def test_this_process_uses_what_it_says_itself() -> None:
    began = time.process_time()
    seen = doing(os.getpid())
    assert seen.state == "running"
    assert began - 0.05 <= seen.cpu_s <= time.process_time() + 0.05
