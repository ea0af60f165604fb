"""The compiler of p4/ for `simple_switch`: `python -m testbed.dataplanes.bmv2.compile`, for another MTU with
`--mtu N`. Needs p4c.

The result, p4/compiled/LAYOUT-PROGRAMS-LANES.json, is kept in the repository for KEPT_MTUS in wide lanes:
with all programs of systems, and with the core's alone. It records a hash of all that it was made of, so that
a stale one is told without a compiler.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.aggregation.program import SUM, ProgramSource
from testbed.client.environment import data_folder
from testbed.errors import HostError, TestbedError
from testbed.plugins.registry import sources_named
from testbed.wire import spec
from testbed.wire.render_p4 import P4_LAYOUTS, p4_lanes

ENGINE = "bmv2"
SOURCES = data_folder("p4")
COMPILED = SOURCES / "compiled"
KEPT_LAYOUT = "wide"
KEPT_MTUS = (1500, spec.ONE_BUFFER_MTU, spec.MAX_MTU)
_MAIN = "aggregate.p4"
_COMPILERS = ("p4c-bm2-ss", "p4c")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_TIMEOUT_S = (
    900  # registers of 854 lanes take half a minute of CPU time, or two minutes with an unoptimised p4c
)
# source positions and file paths: useless to the switch, and different on every machine
_DROPPED = frozenset({"source_info", "program"})

Systems = Sequence[ProgramSource]
"""The systems' programs that a switch has besides the core's."""


def target(layout: str, systems: Systems, lanes: int, folder: Path = COMPILED) -> Path:
    """Return the path of the compiled program for packets of this many lanes."""
    return folder / f"{layout}-{'-'.join((SUM, *(each.name for each in systems)))}-{lanes}.json"


def systems_named(names: Sequence[str] | None) -> tuple[ProgramSource, ...]:
    """Return the systems' programs of these names, or all. RequestError for an unknown name."""
    return sources_named(ENGINE, names)


def rendered(layout: str, systems: Systems, lanes: int) -> Mapping[str, str]:
    """Render the files of p4/ that differ between switches: their lanes, their programs, and the memory of
    these.
    """
    chosen = {each.name: f"meta.entry.program == PROGRAM_{each.name.upper()}" for each in systems}
    branches = [
        f"if ({condition}) {{\n            {name}.apply(hdr, meta);" for name, condition in chosen.items()
    ]
    lines = (
        *(f'#include "{each.path}"' for each in systems),
        "",
        "control ByProgram(inout headers_t hdr, inout metadata_t meta) {",
        *(f"    {name.capitalize()}() {name};" for name in (SUM, *chosen)),
        "",
        "    apply {",
        "        " + "\n        } else ".join([*branches, f"{{\n            {SUM}.apply(hdr, meta);"]),
        "        }",
        "    }",
        "}",
    )
    rooms = (
        *(f'#include "{each.path.with_stem(each.path.stem + "_room")}"' for each in systems),
        f"#define ROOMS {' '.join(f'{name.upper()}_ROOM' for name in chosen)}".rstrip(),
    )
    return {
        "lanes.p4": p4_lanes(layout, lanes),
        "programs.p4": "\n".join(lines) + "\n",
        "rooms.p4": "\n".join(rooms) + "\n",
    }


def sources_hash(layout: str, systems: Systems, lanes: int) -> str:
    """Hash everything that a program is made of, without comments."""
    made = rendered(layout, systems, lanes)
    read: dict[str, str] = {}
    _read_in(_MAIN, SOURCES / _MAIN, read)
    for text in made.values():
        for name in _INCLUDED.findall(text):
            _read_in(name, SOURCES / name, read)
    digest = hashlib.sha256()
    for name, text in sorted({**read, **made}.items()):
        digest.update(f"{name}\0{_said(text)}\0".encode())
    return digest.hexdigest()


def _read_in(name: str, path: Path, read: dict[str, str]) -> None:
    """Read a source and its includes into `read`, by their paths relative to p4/."""
    if name not in read:
        read[name] = path.read_text()
        for included in _INCLUDED.findall(read[name]):
            inner = path.parent / included
            _read_in(str(inner.relative_to(SOURCES)), inner, read)


def _said(source: str) -> str:
    """Strip comments from a source, but keep their line breaks: the compiler names tables by lines."""
    bare = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), source)
    return "\n".join(line.rstrip() for line in bare.splitlines())


def recorded_hash(compiled: Path) -> str:
    """Return the hash of the sources of a compiled program."""
    return str(json.loads(compiled.read_text())["__meta__"]["sources"])


def compiler() -> str | None:
    """Return the path of p4c; None if it is not installed."""
    return next((path for name in _COMPILERS if (path := shutil.which(name))), None)


def compile_program(layout: str, systems: Systems, lanes: int) -> str:
    """Compile a program and return its JSON. HostError without p4c; TestbedError with the compiler's first
    error line.
    """
    p4c = compiler()
    if p4c is None:
        raise HostError("compile p4/: neither p4c-bm2-ss nor p4c is on PATH; run sudo make p4-tools")
    with tempfile.TemporaryDirectory(prefix="optinc-p4-") as folder:
        for name, text in rendered(layout, systems, lanes).items():
            (Path(folder) / name).write_text(text)
        written = Path(folder) / "program.json"
        backend = [] if p4c.endswith("p4c-bm2-ss") else ["--target", "bmv2", "--arch", "v1model"]
        output = ["-o", str(written)] if not backend else ["-o", folder]
        argv = [p4c, *backend, "-I", folder, "-I", str(SOURCES), *output, str(SOURCES / _MAIN)]
        code, printed = _run(argv)
        if backend:
            written = Path(folder) / "aggregate.json"
        if code != 0 or not written.exists():
            said = [line for line in printed.splitlines() if "error:" in line] or printed.splitlines()
            raise TestbedError(f"compile p4/: {said[0] if said else f'exit code {code}'}")
        try:
            program = _stripped(json.loads(written.read_text()))
        except ValueError as error:
            raise TestbedError(f"compile p4/: {p4c} wrote half a program; is {folder} full?") from error
    program["__meta__"] |= {"sources": sources_hash(layout, systems, lanes), "compiled_by": _version(p4c)}
    return json.dumps(program, separators=(",", ":"), sort_keys=True).replace('},{"', '},\n{"') + "\n"


def _run(argv: Sequence[str]) -> tuple[int, str]:
    """Run p4c; return its exit code and output. Interrupting this ends p4c and its children: the driver p4c
    starts a preprocessor and a backend.
    """
    try:
        with subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        ) as p4c:
            try:
                printed, _ = p4c.communicate(timeout=_TIMEOUT_S)
            except BaseException:
                if p4c.returncode is None:  # not reaped yet: the number is still its own
                    os.killpg(p4c.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as late:
        raise TestbedError(f"compile p4/: {argv[0]} did not end within {_TIMEOUT_S:g} s") from late
    return p4c.returncode, printed


def _version(p4c: str) -> str:
    _, printed = _run([p4c, "--version"])
    version = re.search(r"\d+(\.\d+)+", printed)
    return f"p4c {version[0]}" if version else "p4c"


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(part) for key, part in value.items() if key not in _DROPPED}
    return [_stripped(part) for part in value] if isinstance(value, list) else value


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m testbed.dataplanes.bmv2.compile", description=__doc__)
    parser.add_argument(
        "--layout", choices=list(P4_LAYOUTS), default=KEPT_LAYOUT, help="of lanes (%(default)s)"
    )
    parser.add_argument("--mtu", type=int, action="append", help="default: those whose programs are kept")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a program is stale; needs no p4c"
    )
    arguments = parser.parse_args(argv)
    if wrong := [mtu for mtu in arguments.mtu or () if not 1280 <= mtu <= spec.MAX_MTU]:
        parser.error(f"--mtu {wrong[0]}; 1280 to {spec.MAX_MTU} are accepted")
    stale = False
    for mtu in arguments.mtu or KEPT_MTUS:
        for systems in ((), systems_named(None)):
            asked = arguments.layout, systems, spec.lanes_for(mtu)
            path = target(*asked)
            if arguments.check:
                if not path.exists() or recorded_hash(path) != sources_hash(*asked):
                    print(
                        f"p4/compiled/{path.name} is stale: run python -m testbed.dataplanes.bmv2.compile",
                        file=sys.stderr,
                    )
                    stale = True
                continue
            try:
                text = compile_program(*asked)
            except TestbedError as error:
                print(f"testbed.dataplanes.bmv2.compile: {error}", file=sys.stderr)
                return error.exit_code
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"p4/compiled/{path.name}: {len(text) >> 10} KiB", flush=True)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
