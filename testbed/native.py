"""The libraries that set-up compiles for this machine: their sources, and whether each is current. Imports
the standard library only: set-up uses it before anything else exists.

A digest of the sources is compiled in (SOURCES_DIGEST). So a library older than its sources is noticed
whatever the times of files are, which mean nothing after `git checkout`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
MACRO = "SOURCES_DIGEST"
REMEDY = "run: sudo make setup"


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled library beside the module that opens it: `module` is its name, `compiled` and `included` are
    patterns of files in the checkout.
    """

    module: str
    compiled: tuple[str, ...]
    included: tuple[str, ...]

    @property
    def path(self) -> Path:
        return CHECKOUT / (self.module.replace(".", "/") + EXTENSION_SUFFIXES[0])

    def files(self, patterns: tuple[str, ...], root: Path | None = None) -> list[Path]:
        return [path for pattern in patterns for path in sorted((root or CHECKOUT).glob(pattern))]

    def digest(self, root: Path | None = None) -> str | None:
        """Compute the digest of its sources; None if there are none, as in an installation by pip."""
        paths = self.files((*self.compiled, *self.included), root)
        if not self.files(self.compiled, root):
            return None
        return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()

    def is_current(self, file: Path, root: Path | None = None) -> bool:
        """Return whether a file was compiled from the present sources; True if there are none. Raises
        OSError.
        """
        digest = self.digest(root)
        return digest is None or digest.encode() in file.read_bytes()

    def why_stale(self, file: Path) -> str | None:
        """Return a line on why a file cannot be used; None if it can."""
        try:
            if self.is_current(file):
                return None
        except OSError as error:
            return f"{file.name} does not load ({error.strerror}); {REMEDY}"
        return f"{file.name} was compiled from other sources; {REMEDY}"


ENDPOINT = Library(
    "workloads._endpoint", ("workloads/native/*.c",), ("workloads/native/*.h", "bpf/wire.h", "bpf/ring.h")
)


def of_system(module: str) -> Library:
    """Describe a library of a system's package: its source is `native/NAME.c` beside the module `_NAME`."""
    folder, _, name = module.replace(".", "/").rpartition("/_")
    included = ("bpf/wire.h", "bpf/places.h", "bpf/systems/*_contract.h", "workloads/native/sends_meaning.h")
    return Library(module, (f"{folder}/native/{name}.c",), included)


CALENDAR = Library(
    "testbed.dataplanes.xdp._calendar",
    ("testbed/dataplanes/xdp/native/calendar*.c",),
    (
        "testbed/dataplanes/xdp/native/calendar.h",
        "bpf/wire.h",
        "bpf/places.h",
        "workloads/native/sends_meaning.h",
    ),
)


DELAYS = Library(
    "testbed.dataplanes.xdp._delays",
    ("testbed/dataplanes/xdp/native/delays.c",),
    ("workloads/native/sends_meaning.h",),
)


def _modules() -> list[str]:
    """List the modules of all libraries with sources in systems' packages."""
    sources = sorted(CHECKOUT.glob("testbed/systems/**/native/*.c"))
    beside = (path.parent.parent.relative_to(CHECKOUT) / f"_{path.stem}" for path in sources)
    return [".".join(path.parts) for path in beside]


OF_SYSTEMS = tuple(of_system(module) for module in _modules())
LIBRARIES = (ENDPOINT, CALENDAR, DELAYS, *OF_SYSTEMS)
