"""Store the maps and programs that BCC made of a C text in a folder, so that the same text needs no compiler
again. Compiling takes a processor some five seconds, loading some hundredths.

Whoever can write to the folder could make the kernel run anything. So it is used only if nobody but the user
who runs this, root, can write there.

Errors of the folder, such as a full disk, only cause another compilation: nothing here raises for them.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.client.atomic_write import write_whole
from testbed.dataplanes.xdp.syscall import map_create
from testbed.host_checks.headers import is_own

MOST = 32  # stored texts: each MTU has one, and tests have variants of each
_FORMAT = 1
_INSTRUCTION = 8  # bytes
_LOAD_64, _OF_MAP = 0x18, 1  # first byte, and upper half of the second: loads a map's descriptor
_INNER = re.compile(r'^BPF_ARRAY_OF_MAPS\((\w+), "(\w+)",', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CType:
    """A C type: its size in bytes, and the offsets of its fields without padding; no fields for a plain
    number.
    """

    size_bytes: int
    fields: Mapping[str, int]

    @classmethod
    def of(cls, made: Any) -> CType:
        """Describe a ctypes type."""
        offsets = {field[0]: getattr(made, field[0]).offset for field in getattr(made, "_fields_", [])}
        return cls(
            ctypes.sizeof(made), {name: at for name, at in offsets.items() if not name.startswith("__")}
        )


@dataclass(frozen=True, slots=True)
class MapObject:
    """A map to be made, with numbers as in bpf(2). `inner` is the template of a map of maps; `value_bytes`
    covers all processors if each has its own value.
    """

    name: str
    kind: int
    key: CType
    value: CType
    value_bytes: int
    entries: int
    flags: int
    inner: str | None


@dataclass(frozen=True, slots=True)
class Objects:
    """The maps and programs of a text. Instructions refer to a map by its index in `maps`."""

    maps: tuple[MapObject, ...]
    programs: Mapping[str, bytes]
    license: bytes

    @classmethod
    def made(cls, bpf: Any, text: str, programs: Iterable[str]) -> Objects:
        """Extract them from BCC's `BPF` object, whose maps exist."""
        from bcc.libbcc import lib

        lib.bpf_table_leaf_size_id.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        lib.bpf_table_leaf_size_id.restype = ctypes.c_size_t
        inner = dict(_INNER.findall(text))
        maps: list[MapObject] = []
        places: dict[int, int] = {}  # by descriptor
        for name in _tables(lib, bpf.module):
            table = bpf[name]
            places[table.map_fd] = len(maps)
            maps.append(
                MapObject(
                    name,
                    lib.bpf_table_type_id(bpf.module, table.map_id),
                    CType.of(table.Key),
                    CType.of(table.Leaf),
                    lib.bpf_table_leaf_size_id(bpf.module, table.map_id),
                    lib.bpf_table_max_entries_id(bpf.module, table.map_id),
                    lib.bpf_table_flags_id(bpf.module, table.map_id),
                    inner.get(name),
                )
            )
        lib.bpf_module_license.restype = ctypes.c_char_p
        code = {name: _renumbered(bpf.dump_func(name), places) for name in programs}
        return cls(tuple(maps), code, lib.bpf_module_license(bpf.module))

    def create(self) -> dict[str, int]:
        """Make the maps, templates first, and return their descriptors. OSError if the kernel refuses."""
        made: dict[str, int] = {}
        try:
            for each in sorted(self.maps, key=lambda each: each.inner is not None):
                made[each.name] = map_create(
                    each.kind,
                    each.key.size_bytes,
                    each.value_bytes,
                    each.entries,
                    each.flags,
                    each.name,
                    made[each.inner] if each.inner else 0,
                )
        except OSError:
            for fd in made.values():
                os.close(fd)
            raise
        return made

    def instructions(self, program: str, fds: Mapping[str, int]) -> bytes:
        """Return a program's code with these maps' descriptors."""
        return _renumbered(self.programs[program], [fds[each.name] for each in self.maps])


def _tables(lib: Any, module: int) -> list[str]:
    lib.bpf_num_tables.argtypes, lib.bpf_num_tables.restype = [ctypes.c_void_p], ctypes.c_size_t
    lib.bpf_table_name.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    lib.bpf_table_name.restype = ctypes.c_char_p
    return [lib.bpf_table_name(module, at).decode() for at in range(lib.bpf_num_tables(module))]


def _renumbered(code: bytes, numbers: Mapping[int, int] | Sequence[int]) -> bytes:
    """Replace the map numbers in code."""
    changed = bytearray(code)
    at = 0
    while at < len(code):
        is_wide = code[at] == _LOAD_64
        if is_wide and code[at + 1] >> 4 == _OF_MAP:
            old = int.from_bytes(code[at + 4 : at + 8], "little", signed=True)
            changed[at + 4 : at + 8] = numbers[old].to_bytes(4, "little", signed=True)
        at += 2 * _INSTRUCTION if is_wide else _INSTRUCTION
    return bytes(changed)


# ---------------------------------------------------------------- the folder


def key_of(*facts: str) -> str:
    """Return the name of stored objects that depend on all of these facts."""
    return hashlib.sha256("\0".join([str(_FORMAT), *facts]).encode()).hexdigest()


def kept(key: str, folder: Path) -> Objects | None:
    """Return the objects stored under this name; None if there are none, or the file is damaged."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if is_own(folder):
            content = (folder / key).read_bytes()
            digest, _, body = content.partition(b"\n")
            if digest.decode() == hashlib.sha256(body).hexdigest():
                os.utime(folder / key)
                return _read(json.loads(body))
    return None


def keep(key: str, objects: Objects, folder: Path) -> None:
    """Store objects atomically, and delete the least recently used ones beyond MOST."""
    body = json.dumps(
        {
            "maps": [asdict(each) for each in objects.maps],
            "programs": {name: base64.b64encode(code).decode() for name, code in objects.programs.items()},
            "license": objects.license.decode(),
        }
    ).encode()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_own(folder):
            return
        write_whole(folder / key, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        files = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in files[:-MOST]:
            old.unlink(missing_ok=True)


def _read(value: Any) -> Objects:
    maps = tuple(
        MapObject(**{**each, "key": CType(**each["key"]), "value": CType(**each["value"])})
        for each in value["maps"]
    )
    programs = {name: base64.b64decode(code) for name, code in value["programs"].items()}
    return Objects(maps, programs, value["license"].encode())
