"""Writes what is rendered from this folder: C, P4 and Lua. `rendered` is the list of the files.

`python -m testbed.wire.emit` writes them; with `--check` it says which one is stale and exits 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.wire import render_c, render_lua, render_p4, spec

ROOT = Path(__file__).resolve().parents[2]


def rendered() -> dict[Path, str]:
    """Every rendered file and what it should hold."""
    bpf, p4 = ROOT / "bpf", ROOT / "p4"
    return {
        bpf / "wire.h": render_c.header(),
        bpf / "verdicts.h": render_c.verdict_numbers(),
        bpf / "places.h": render_c.places_header(),
        bpf / "ring.h": render_c.ring(),
        bpf / "link_faults.h": render_c.link_faults(),
        bpf / "link_marks.h": render_c.link_marks(),
        bpf / "link_apart.h": render_c.link_apart(),
        ROOT / "workloads" / "native" / "contract.h": render_c.endpoint_header(),
        ROOT / "workloads" / "native" / "ends_contract.h": render_c.ends_header(),
        ROOT / "workloads" / "native" / "calls_contract.hpp": render_c.calls_header(),
        p4 / "wire.p4": render_p4.header(),
        p4 / "verdicts.p4": render_p4.verdict_constants(),
        p4 / "places.p4": render_p4.places_header(),
        p4 / "set_entry.p4": render_p4.set_entry(),
        p4 / "set_terms.p4": render_p4.set_terms(),
        p4 / "lanes.p4": render_p4.p4_lanes("wide", spec.LANES),
        ROOT / "wireshark" / "optinc.lua": render_lua.lua_dissector(),
    }


def stale() -> list[Path]:
    """The rendered files that do not hold what the format says now."""
    return [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m testbed.wire.emit", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    arguments = parser.parse_args(argv)
    old = stale()
    if arguments.check:
        for path in old:
            print(f"{path.relative_to(ROOT)} is stale: run `python -m testbed.wire.emit`", file=sys.stderr)
        return 1 if old else 0
    for path, text in rendered().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
