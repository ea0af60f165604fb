"""`testbed capture`: writes the frames of one link of a running testbed, in both directions, to a pcap
file.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.api.capturing import CapturedFrames
    from testbed.messages.events import LinkTapped

_CHUNK_BYTES = 1 << 16


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.api.capturing import COUNT, MOST_COUNT, MOST_SECONDS, SECONDS, STDOUT, capture
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.errors import RequestError

    parser = environment.Parser(
        prog="testbed capture",
        description="Write the frames of one link to a pcap file: each once, when it leaves the link's "
        "queue. Ctrl-C ends it early; the file then holds the frames up to then.",
    )
    kinds = (
        "a host's link (u1h1), an optical port's (u1o1), a ToR's to its pod switch (u1r1), or a "
        "unit's to the core (u1c)"
    )
    parser.add_argument("link", metavar="LINK", help=kinds)
    add_name_option(parser)
    parser.add_argument(
        "--output",
        metavar="FILE.pcap",
        help="the file (LINK.pcap); -: stdout, with nothing else on it, until its reader ends, or until "
        "--count or --seconds if given",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the last line")
    parser.add_argument("--count", type=int, metavar="N", help=f"end after N frames ({COUNT})")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"end after S seconds ({SECONDS:g})")
    options = parser.parse_args(argv)
    to_stdout = options.output == STDOUT
    if to_stdout and sys.stdout.isatty():
        raise RequestError(
            "--output -: stdout is a terminal; a pipe or a file is accepted, such as | wireshark -k -i -"
        )
    output = STDOUT if to_stdout else str(Path(options.output or f"{options.link}.pcap").absolute())
    runtime, caller = Runtime.meant(options.name), Caller.of_this_process()
    copying: list[threading.Thread] = []

    def on_tap(event: LinkTapped, fd: int | None) -> None:
        print(f"testbed capture: {event.capturing}: to {output}", file=sys.stderr, flush=True)
        if fd is not None:
            copying.append(threading.Thread(target=_copy, args=(fd,), daemon=True))
            copying[0].start()

    usual_count, usual_s = (MOST_COUNT, MOST_SECONDS) if to_stdout else (COUNT, SECONDS)
    count = usual_count if options.count is None else options.count
    seconds = usual_s if options.seconds is None else options.seconds
    try:
        result = capture(runtime, caller, options.link, output, count, seconds, on_tap)
    except KeyboardInterrupt:
        if to_stdout:
            return 0 if _gone else environment.INTERRUPTED
        raise
    for thread in copying:
        thread.join()
    early = too_late(result, options.count, seconds) if options.seconds is None else ""
    last = json.dumps(result) if options.json else f"{said(result)}{early}"
    print(last, file=sys.stderr if to_stdout else sys.stdout)
    return 0


_gone: list[bool] = []  # not empty: the reader of stdout has ended


def said(result: CapturedFrames) -> str:
    """Describe the captured frames in one line."""
    missed = ", {missed} more missed: the machine is too busy" if result["missed"] else ""
    ways = "({forward} {from}, {backward} {to})"
    text = "{link}: {count} frames in {seconds:.1f} s " + ways + missed + "; {file}"
    return text.format(**result, count=result["forward"] + result["backward"])


def too_late(result: CapturedFrames, wanted: int | None, usual_s: float) -> str:
    """Say that the usual duration ended a capture before the `wanted` frames; "" if it did not."""
    if wanted is None or result["forward"] + result["backward"] >= wanted or result["seconds"] < usual_s:
        return ""
    return f"; {wanted} frames were wanted, and {usual_s:g} s were over: --seconds allows more"


def _copy(fd: int) -> None:
    """Copy all data to stdout; if the reader of stdout has gone, end the command."""
    stdout, watched = sys.stdout.fileno(), select.poll()
    watched.register(fd, select.POLLIN)
    watched.register(stdout, 0)  # POLLERR: its reader has gone
    with open(fd, "rb", buffering=0) as source:
        try:
            while True:
                if any(each == stdout for each, _ in watched.poll()):
                    raise BrokenPipeError
                if not (data := source.read(_CHUNK_BYTES)):
                    return
                while data:
                    data = data[os.write(stdout, data) :]
        except OSError:
            _gone.append(True)
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)  # the main thread waits in a system call


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
