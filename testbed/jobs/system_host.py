"""The process that lays a job out by a user's system: `python -m testbed.jobs.system_host FILE.py:CLASS`, as
that user.

It reads the workers and the site as a line of JSON from the socket that is its standard input, and writes its
answer there as another. The user code's own output goes to standard output.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from dataclasses import asdict

from testbed.aggregation.messages import layout_to_json, site_from_json
from testbed.aggregation.system import Layout, completed
from testbed.errors import RequestError
from testbed.jobs.layout_question import LayoutAnswer, LayoutQuestion
from testbed.jobs.option_table import OF_PROGRAMS
from testbed.plugins.user_class import in_a_line, load


def answer_to(name: str, asked: LayoutQuestion) -> LayoutAnswer:
    """Lay the job out."""
    try:
        system = load(name)()
        _check_options(system)
        workers = [(int(unit), int(host)) for unit, host in asked.workers]
        layout = system.lay_out(workers, site_from_json(asked.site))
        if not isinstance(layout, Layout):
            raise TypeError(f"lay_out returned {type(layout).__name__}, which is no Layout")
        return LayoutAnswer(layout=layout_to_json(completed(layout, system)))
    except RequestError as error:
        return LayoutAnswer(refused=str(error))
    except Exception as error:  # a user's code may raise anything
        traceback.print_exc()
        return LayoutAnswer(raised=in_a_line(error))


def _check_options(system: object) -> None:
    """Raise RequestError for an option of programs as an attribute of its own, which nothing would read."""
    for option in OF_PROGRAMS:
        if hasattr(system, option):
            raise RequestError(f"{option}: accepted in usual_options, as {{{option!r}: ...}}")


def main(argv: list[str]) -> int:
    """Answer one request."""
    (name,) = argv
    with socket.socket(fileno=os.dup(0)) as peer, peer.makefile("rwb") as lines:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        answer = answer_to(name, LayoutQuestion(**json.loads(lines.readline())))
        lines.write(json.dumps(asdict(answer)).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
