"""The ticks a second that the places of a running network handle.

`python -m tests.bench.ticks [--json FILE]`, as root. For each engine, from one thread and from several at the
same time: the time of a call of `Places.tick`, and the calls a second. Each tick completes a sum.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.host import facts
from tests.privileged.inside import findings
from tests.privileged.tick_scenarios import fabric


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ticks", description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    paces = findings("tick_scenarios:paced", fabric("bmv2"))
    for name, pace in paces.items():
        print(f"{name:<20} {pace['call_ms']:8.2f} ms a call {pace['a_second']:8.0f} a second")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"host": facts(), "ticks": paces}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
