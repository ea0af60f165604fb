"""The compiled P4 program of a configuration's switches, and the names of its counters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from testbed.client.atomic_write import write_whole
from testbed.dataplanes.bmv2.compile import (
    KEPT_LAYOUT,
    KEPT_MTUS,
    Systems,
    compile_program,
    compiler,
    recorded_hash,
    sources_hash,
    systems_named,
    target,
)
from testbed.errors import HostError, RequestError
from testbed.host_checks.headers import cache_folder, is_own
from testbed.wire import spec, verdicts
from testbed.wire.render_p4 import P4_LAYOUTS


def lanes_of(program: Path) -> int:
    """Return the lanes of a compiled program's packets."""
    return int(program.stem.rpartition("-")[2])


def programs_of(program: Path) -> list[str]:
    """Return the names of the data-plane programs in a compiled program."""
    return program.stem.split("-")[1:-1]


def compiled(layout: str, mtu: int, names: Sequence[str] | None = None) -> Path:
    """Return the compiled program for a fabric of this MTU in bytes, with the systems' programs of these
    names, or all. One that is not kept in the repository is compiled, once.

    RequestError for an unknown layout or name, HostError without a compiler, TestbedError if compiling fails.
    """
    if layout not in P4_LAYOUTS:
        raise RequestError(f"bmv2.layout: {layout!r}; accepted are {', '.join(P4_LAYOUTS)}")
    systems, lanes = systems_named(names), spec.lanes_for(mtu)
    path = target(layout, systems, lanes)
    digest = sources_hash(layout, systems, lanes)
    return path if _is_made_of(path, digest) else _made(layout, systems, lanes, digest)


def _made(layout: str, systems: Systems, lanes: int, digest: str) -> Path:
    """Return a program compiled earlier on this host, or compile it. The folder is named by the sources'
    hash: so a restarted switch loads the same program, whatever another checkout compiled meanwhile.
    """
    folder = cache_folder() / "p4"
    path = target(layout, systems, lanes, folder / digest[:16])
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_own(folder):
            raise HostError(f"bmv2: {folder} is another's, or others may write there: remove it")
        if _is_made_of(path, digest):
            return path
        if compiler() is None:
            mtus = " or ".join(map(str, KEPT_MTUS))
            raise HostError(
                f"bmv2: {path.name} is not kept in p4/compiled, and there is no p4c to compile it; run sudo "
                f"make p4-tools, or take layout {KEPT_LAYOUT}, an mtu of {mtus}, and programs all or none"
            )
        print(f"bmv2: compiling {path.name}, once", file=sys.stderr, flush=True)
        text = compile_program(layout, systems, lanes)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        raise HostError(f"bmv2: keep {path}: {error.strerror}") from error
    return path


def _is_made_of(path: Path, digest: str) -> bool:
    with suppress(OSError, ValueError, KeyError):
        return recorded_hash(path) == digest
    return False


def verdict_names() -> dict[int, str]:
    """Return the names of the counters in the array `verdicts`, by index."""
    return verdicts.names(verdicts.Engine.P4)
