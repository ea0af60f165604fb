"""Render C, P4 and Lua files from the contracts. Those of testbed/wire/ are listed here; those of a system
are rendered by the module `rendered` of its package.

`python -m scripts.render` writes the files; with `--check` it names stale ones and exits with 1.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path

import testbed.systems
import workloads
from testbed.wire import render_c, render_lua, render_p4, spec

ROOT = Path(__file__).resolve().parents[1]


def rendered() -> dict[Path, str]:
    """Return every rendered file's path and text."""
    files = {
        "bpf/wire.h": render_c.header(),
        "bpf/verdicts.h": render_c.verdict_numbers(),
        "bpf/places.h": render_c.places_header(),
        "bpf/ring.h": render_c.ring(),
        "bpf/link_faults.h": render_c.link_faults(),
        "bpf/link_marks.h": render_c.link_marks(),
        "bpf/link_delay.h": render_c.link_delay(),
        "bpf/link_apart.h": render_c.link_apart(),
        "workloads/native/wire.h": render_c.endpoint_header(),
        "workloads/native/calls_contract.hpp": render_c.calls_header(),
        "p4/wire.p4": render_p4.header(),
        "p4/verdicts.p4": render_p4.verdict_constants(),
        "p4/places.p4": render_p4.places_header(),
        "p4/set_entry.p4": render_p4.set_entry(),
        "p4/lanes.p4": render_p4.p4_lanes("wide", spec.LANES),
        "wireshark/optinc.lua": render_lua.lua_dissector(),
        **of_systems(),
    }
    return {ROOT / path: text for path, text in files.items()}


def of_systems() -> dict[str, str]:
    """Return the rendered files of systems' packages, by their paths in the checkout."""
    files: dict[str, str] = {}
    systems = pkgutil.iter_modules(testbed.systems.__path__, "testbed.systems.")
    packages = (*systems, *pkgutil.iter_modules(workloads.__path__, "workloads."))
    for info in packages:
        if info.ispkg and importlib.util.find_spec(f"{info.name}.rendered"):
            made: Mapping[str, str] = importlib.import_module(f"{info.name}.rendered").rendered()
            files.update(made)
    return files


def stale() -> list[Path]:
    """Return the rendered files that differ from the present contracts."""
    return [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]


def main(argv: list[str] | None = None) -> int:
    """Write the files, or check them with `--check`; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m scripts.render", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    arguments = parser.parse_args(argv)
    old = stale()
    if arguments.check:
        for path in old:
            print(f"{path.relative_to(ROOT)} is stale: run `python -m scripts.render`", file=sys.stderr)
        return 1 if old else 0
    for path, text in rendered().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
