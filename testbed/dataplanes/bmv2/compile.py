"""The compiler of p4/ for `simple_switch`: `python -m testbed.dataplanes.bmv2.compile`, for another MTU with
`--mtu N`. Needs p4c.

The result, p4/compiled/LAYOUT-LANES.json, is kept in the repository for KEPT_MTUS. It records a hash of all
that it was made of, so that a stale one is told without a compiler.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from testbed.dataplanes.bmv2.program import P4_DIR, target
from testbed.errors import HostError, TestbedError
from testbed.wire import spec
from testbed.wire.emit import ROOT
from testbed.wire.render_p4 import P4_LAYOUTS, p4_lanes

SOURCES = P4_DIR
KEPT_MTUS = {"wide": (1500, spec.ONE_BUFFER_MTU, spec.MAX_MTU), "registers": (1500, spec.ONE_BUFFER_MTU)}
_COMPILERS = ("p4c-bm2-ss", "p4c")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TIMEOUT_S = 900  # registers of 854 lanes take half a minute of CPU time, or two where p4c is not optimised
# where in a source something was, and on whose disk: of no use to the switch, and other on every machine
_DROPPED = frozenset({"source_info", "program"})


def sources_hash(layout: str, lanes: int) -> str:
    """Return the hash of all that a program is made of: no comment is."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*.p4")):
        if path.name != "lanes.p4":
            digest.update(f"{path.name}\0{_said(path.read_text())}\0".encode())
    digest.update(_said(p4_lanes(layout, lanes)).encode())
    return digest.hexdigest()


def _said(source: str) -> str:
    """Return what the compiler looks at: no words of comments, but their lines, by which it names tables."""
    bare = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), source)
    return "\n".join(line.rstrip() for line in bare.splitlines())


def recorded_hash(compiled: Path) -> str:
    """Return the hash of what a compiled program was made of."""
    return str(json.loads(compiled.read_text())["__meta__"]["sources"])


def compile_program(layout: str, lanes: int) -> str:
    """Return the program's JSON. HostError without p4c; TestbedError with the compiler's first line of
    complaint.
    """
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise HostError("compile p4/: neither p4c-bm2-ss nor p4c is on PATH; run sudo make p4-tools")
    with tempfile.TemporaryDirectory(prefix="optinc-p4-") as folder:
        (Path(folder) / "lanes.p4").write_text(p4_lanes(layout, lanes))
        written = Path(folder) / "program.json"
        backend = [] if compiler.endswith("p4c-bm2-ss") else ["--target", "bmv2", "--arch", "v1model"]
        output = ["-o", str(written)] if not backend else ["-o", folder]
        argv = [compiler, *backend, "-I", folder, "-I", str(SOURCES), *output, str(SOURCES / "aggregate.p4")]
        try:
            ended = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired as late:
            raise TestbedError(f"compile p4/: {compiler} did not end within {_TIMEOUT_S:g} s") from late
        if backend:
            written = Path(folder) / "aggregate.json"
        if ended.returncode != 0 or not written.exists():
            said = [
                line for line in ended.stderr.splitlines() if "error:" in line
            ] or ended.stderr.splitlines()
            raise TestbedError(f"compile p4/: {said[0] if said else f'exit code {ended.returncode}'}")
        program = _stripped(json.loads(written.read_text()))
    program["__meta__"] |= {"sources": sources_hash(layout, lanes), "compiled_by": _version(compiler)}
    return json.dumps(program, separators=(",", ":"), sort_keys=True).replace('},{"', '},\n{"') + "\n"


def _version(compiler: str) -> str:
    ended = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    version = re.search(r"\d+(\.\d+)+", ended.stdout + ended.stderr)
    return f"p4c {version[0]}" if version else "p4c"


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(part) for key, part in value.items() if key not in _DROPPED}
    return [_stripped(part) for part in value] if isinstance(value, list) else value


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m testbed.dataplanes.bmv2.compile", description=__doc__)
    parser.add_argument("--layout", choices=list(P4_LAYOUTS), action="append", help="default: all")
    parser.add_argument("--mtu", type=int, action="append", help="default: those whose programs are kept")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a program is stale; needs no p4c"
    )
    arguments = parser.parse_args(argv)
    if wrong := [mtu for mtu in arguments.mtu or () if not 1280 <= mtu <= spec.MAX_MTU]:
        parser.error(f"--mtu {wrong[0]}; 1280 to {spec.MAX_MTU} are accepted")
    stale = False
    asked = [
        (layout, spec.lanes_for(mtu))
        for layout in arguments.layout or P4_LAYOUTS
        for mtu in arguments.mtu or KEPT_MTUS[layout]
    ]
    for layout, lanes in asked:
        path = target(layout, lanes)
        if arguments.check:
            if not path.exists() or recorded_hash(path) != sources_hash(layout, lanes):
                print(
                    f"{path.relative_to(ROOT)} is stale: run python -m testbed.dataplanes.bmv2.compile",
                    file=sys.stderr,
                )
                stale = True
            continue
        try:
            text = compile_program(layout, lanes)
        except TestbedError as error:
            print(f"testbed.dataplanes.bmv2.compile: {error}", file=sys.stderr)
            return error.exit_code
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"{path.relative_to(ROOT)}: {len(text) >> 10} KiB")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
