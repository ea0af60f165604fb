"""A figure's measurements in namespaces of their own. The outer process starts them and pins kernel threads
for them; the inner one is `python -m reproductions.aleph.micro.session FIGURE SETTINGS`. The namespaces end
with the measurements.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from reproductions.aleph.micro.clocks import DONE, PINS
from reproductions.aleph.micro.plan import NEEDS_LONG, Extent, rows
from reproductions.aleph.micro.rows import AnyRow
from testbed.client import environment
from testbed.emulation.namespaces import command, die_with_parent, private_mounts
from testbed.errors import TestbedError, from_exit_code
from testbed.interpreters import isolated
from testbed.messages.coding import as_json, decode
from testbed.wire.spec import LANES

ROW = "row "
NAME = "micro"
_MODULE = "reproductions.aleph.micro.session"
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """The argument of the inner process: what to measure, the gradients of the smaller packet, and the file
    descriptor of the outer /proc.
    """

    extent: Extent
    lanes: int
    proc: int


def run(
    kind: type[AnyRow], figure: str, asked: Extent, lanes: int, on_row: Callable[[AnyRow], None]
) -> list[AnyRow]:
    """Run a figure's measurements, call `on_row` with each as it arrives, and return them all. Raises the
    error of the inner process.
    """
    with tempfile.TemporaryFile("w+") as errors:
        return _run(kind, figure, asked, lanes, on_row, errors)


def _run(
    kind: type[AnyRow],
    figure: str,
    asked: Extent,
    lanes: int,
    on_row: Callable[[AnyRow], None],
    errors: IO[str],
) -> list[AnyRow]:
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    settings = json.dumps(as_json(MeasurementSettings(asked, lanes, proc)))
    argv = command(isolated("-m", _MODULE, figure, settings), NAME)
    measured: list[AnyRow] = []
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv,
            cwd=environment.CHECKOUT,
            stdin=pipe,
            stdout=pipe,
            stderr=errors,
            text=True,
            pass_fds=[proc],
            preexec_fn=die_with_parent,
        )
    finally:
        os.close(proc)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(PINS):
                    for pid, core in json.loads(line.removeprefix(PINS)).items():
                        os.sched_setaffinity(int(pid), {core})
                    print(DONE, file=process.stdin, flush=True)
                elif line.startswith(ROW):
                    measured.append(decode(kind, json.loads(line.removeprefix(ROW)), "a measurement"))
                    on_row(measured[-1])
            code = process.wait(_END_S)
        finally:
            process.kill()  # unshare: all processes in its PID namespace end with it
    if code:
        errors.seek(0)
        output = errors.read().strip()
        raise from_exit_code(code, f"{figure}: {(output.splitlines() or ['it said nothing'])[-1]}")
    return measured


def inside(figure: str, settings: MeasurementSettings) -> None:
    """Run the measurements in the namespaces, and print each row when it is complete."""
    from reproductions.aleph.micro.rig import Tools

    proc = Path(f"/proc/self/fd/{settings.proc}")
    with ExitStack() as stack:
        tools = stack.enter_context(Tools(settings.lanes, proc))
        long = stack.enter_context(Tools(LANES, proc)) if figure in NEEDS_LONG else None
        for row in rows(figure, tools, long, settings.extent):
            print(ROW + json.dumps(as_json(row)), flush=True)


def main(words: list[str]) -> int:
    figure, text = words
    private_mounts(NAME)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        inside(figure, decode(MeasurementSettings, json.loads(text), "settings"))
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
