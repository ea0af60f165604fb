"""Renders the wire format as C (bpf/wire.h) and P4 (p4/wire.p4).

`python -m testbed.wire.emit` writes the files; with `--check` it says which one is stale and exits 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.wire import spec

ROOT = Path(__file__).resolve().parents[2]
_NOTE = "Rendered by testbed/wire/emit.py from testbed/wire/spec.py; `make wire` renders it again."


def c_header() -> str:
    """bpf/wire.h."""
    types = {8: "__u8", 16: "__be16", 32: "__be32"}
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */",
        f"/* {_NOTE} */",
        "#ifndef WIRE_H",
        "#define WIRE_H",
        "",
        f"#define WIRE_MAGIC {spec.MAGIC:#06x}",
        f"#define WIRE_VERSION {spec.VERSION}",
        f"#define WIRE_UDP_PORT {spec.UDP_PORT}",
        "#ifndef WIRE_LANES",
        f"#define WIRE_LANES {spec.LANES} /* at MTU 1500; a fabric with another one says so to the compiler */",
        "#endif",
        f"#define WIRE_MAX_WORKERS {spec.MAX_WORKERS}",
        "",
        *(f"#define WIRE_OP_{op.name} {op.value}" for op in spec.Op),
        *(f"#define WIRE_FLAG_{flag.name} {flag.value}" for flag in spec.Flag),
        "",
        "struct wire_header {",
        *(f"\t{types[f.bits]} {f.name}; /* {f.meaning} */" for f in spec.HEADER),
        "};",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def p4_header() -> str:
    """p4/wire.p4."""
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {_NOTE}",
        "#ifndef WIRE_P4",
        "#define WIRE_P4",
        "",
        f"const bit<16> WIRE_MAGIC = {spec.MAGIC:#06x};",
        f"const bit<8> WIRE_VERSION = {spec.VERSION};",
        f"const bit<16> WIRE_UDP_PORT = {spec.UDP_PORT};",
        f"#define WIRE_LANES {spec.LANES}",
        "",
        *(f"const bit<8> WIRE_OP_{op.name} = {op.value};" for op in spec.Op),
        *(f"const bit<8> WIRE_FLAG_{flag.name} = {flag.value};" for flag in spec.Flag),
        "",
        "header wire_h {",
        *(f"    bit<{f.bits}> {f.name}; // {f.meaning}" for f in spec.HEADER),
        "}",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def rendered() -> dict[Path, str]:
    """Every rendered file and what it should hold."""
    return {ROOT / "bpf" / "wire.h": c_header(), ROOT / "p4" / "wire.p4": p4_header()}


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
