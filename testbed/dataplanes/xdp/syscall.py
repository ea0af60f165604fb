"""The bpf(2) system call: maps by descriptor, pins, test runs. Of the project, imports only errors.

It complements bcc, since bcc 0.26 has no call for inner maps made at run time, for opening another process's
pins, and for running a loaded program on a given packet.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import HostError, TestbedError

_NR_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_MAP_CREATE, _LOOKUP, _UPDATE, _DELETE, _NEXT_KEY, _OBJ_PIN, _OBJ_GET, _TEST_RUN = 0, 1, 2, 3, 4, 6, 7, 10
_PROGRAM_BY_NUMBER, _INFO = 13, 15
_INFO_NAME_AT, _INFO_BYTES = 64, 80  # in struct bpf_prog_info, up to the end of the name
_LOOKUP_BATCH, _UPDATE_BATCH, _DELETE_BATCH = 24, 26, 27
_BATCH = "=QQQQIIQQ"  # in batch, out batch, keys, values, count, map, two words of flags
_BATCH_COUNT_AT = 32

MAP_TYPE_ARRAY, MAP_TYPE_DEVMAP = 2, 14
F_MMAPABLE = 1 << 10
F_INNER_MAP = 1 << 12  # an inner map may differ in size from its template
_LIVE_FRAMES = 1 << 1

XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT = range(5)

Rows = np.ndarray[Any, np.dtype[Any]]

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: ctypes.Array[ctypes.c_char], what: str) -> int:
    number = _NR_BPF.get(os.uname().machine)
    if number is None:
        raise HostError(
            f"bpf(2) on {os.uname().machine}: system call number not known; x86_64, aarch64 and riscv64 are"
        )
    done = int(_libc.syscall(number, command, attributes, len(attributes)))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return done


def _attributes(layout: str, *values: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack(layout, *values).ljust(152, b"\0"), 152)


def _address(data: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(data)


def u32(number: int) -> bytes:
    """Encode a 32-bit key or value in this host's byte order."""
    return number.to_bytes(4, sys.byteorder)


def map_create(
    kind: int, key_bytes: int, value_bytes: int, entries: int, flags: int, name: str, inner_fd: int = 0
) -> int:
    """Make a map and return its descriptor. For a map of maps, `inner_fd` is the template."""
    packed = struct.pack(
        "=IIIIIII16s", kind, key_bytes, value_bytes, entries, flags, inner_fd, 0, name.encode()[:15]
    )
    return _bpf(_MAP_CREATE, ctypes.create_string_buffer(packed.ljust(152, b"\0"), 152), f"create map {name}")


def map_update(fd: int, key: bytes, value: bytes) -> None:
    """Set an entry, new or existing."""
    k, v = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value, len(value))
    _bpf(_UPDATE, _attributes("=IIQQQ", fd, 0, _address(k), _address(v), 0), "update a map")


def map_lookup(fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """Return an entry's value, or None. For a per-CPU map `value_bytes` covers all CPUs."""
    k, v = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value_bytes)
    try:
        _bpf(_LOOKUP, _attributes("=IIQQQ", fd, 0, _address(k), _address(v), 0), "look up in a map")
    except FileNotFoundError:
        return None
    return v.raw


def map_lookup_rows(fd: int, keys: Rows, value: np.dtype[Any]) -> Rows:
    """Return the values of an array of keys, which must all exist."""
    values = np.empty(len(keys), value)
    attributes = _attributes("=IIQQQ", fd, 0, 0, 0, 0)
    at, to = keys.ctypes.data, values.ctypes.data
    for _ in range(len(keys)):
        struct.pack_into("=QQ", attributes, 8, at, to)
        _bpf(_LOOKUP, attributes, "look up in a map")
        at, to = at + keys.itemsize, to + value.itemsize
    return values


def map_delete(fd: int, key: bytes) -> bool:
    """Delete an entry, and return whether it existed."""
    k = ctypes.create_string_buffer(key, len(key))
    try:
        _bpf(_DELETE, _attributes("=IIQQQ", fd, 0, _address(k), 0, 0), "delete from a map")
    except FileNotFoundError:
        return False
    return True


def map_update_rows(fd: int, keys: Rows, values: Rows) -> None:
    """Set entries in order, by one call, from arrays of keys and values. OSError at the first that cannot be
    set.
    """
    if len(keys):
        attributes = _attributes(_BATCH, 0, 0, keys.ctypes.data, values.ctypes.data, len(keys), fd, 0, 0)
        _bpf(_UPDATE_BATCH, attributes, "update a map")
        (set_,) = struct.unpack_from("=I", attributes, _BATCH_COUNT_AT)
        if set_ != len(keys):
            raise OSError(errno.EIO, f"update a map: {set_} of {len(keys)} entries were set")


def map_delete_rows(fd: int, keys: Rows) -> None:
    """Delete the entries of an array of keys in order, skipping missing ones; one call if none is missing."""
    while len(keys):
        attributes = _attributes(_BATCH, 0, 0, keys.ctypes.data, 0, len(keys), fd, 0, 0)
        try:
            _bpf(_DELETE_BATCH, attributes, "delete from a map")
        except FileNotFoundError:
            (removed,) = struct.unpack_from("=I", attributes, _BATCH_COUNT_AT)
            if removed >= len(keys):  # the kernel did not report which key is missing
                raise
            keys = keys[removed + 1 :]
        else:
            return


def map_rows(fd: int, key: np.dtype[Any], value: np.dtype[Any], most: int) -> tuple[Rows, Rows]:
    """Return the keys and values of all entries of a map for up to `most`, by one call; an array's in its
    order. A hash map must not change meanwhile.
    """
    keys, values = np.empty(most, key), np.empty(most, value)
    end = ctypes.create_string_buffer(max(8, key.itemsize))
    attributes = _attributes(_BATCH, 0, _address(end), keys.ctypes.data, values.ctypes.data, most, fd, 0, 0)
    with contextlib.suppress(FileNotFoundError):  # the end of the map was reached, after reading its entries
        _bpf(_LOOKUP_BATCH, attributes, "read a map")
    (count,) = struct.unpack_from("=I", attributes, _BATCH_COUNT_AT)
    return keys[:count], values[:count]


def map_entries(fd: int, key: np.dtype[Any], value: np.dtype[Any], most: int) -> dict[bytes, bytes]:
    """Return all entries of a map; see `map_rows`."""
    keys, values = map_rows(fd, key, value, most)
    return dict(zip(records(keys), records(values), strict=True))


def records(rows: Rows) -> list[bytes]:
    """Split an array into rows encoded as a map's keys or values."""
    packed, size = rows.tobytes(), rows.dtype.itemsize
    return [packed[at : at + size] for at in range(0, len(packed), size)]


def map_keys(fd: int, key_bytes: int) -> Iterator[bytes]:
    """Yield all keys of a map. The map must not change between two steps; make a list first."""
    key: bytes | None = None
    while True:
        following = ctypes.create_string_buffer(key_bytes)
        before = ctypes.create_string_buffer(key, key_bytes) if key is not None else None
        try:
            _bpf(
                _NEXT_KEY,
                _attributes("=IIQQ", fd, 0, _address(before) if before else 0, _address(following)),
                "walk a map",
            )
        except FileNotFoundError:
            return
        key = following.raw
        yield key


def pin(fd: int, path: Path) -> None:
    """Pin a map or program at a path on a bpffs."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    _bpf(_OBJ_PIN, _attributes("=QII", _address(name), fd, 0), f"pin {path.name}")


def open_pin(path: Path) -> int:
    """Open a pinned map or program; return its descriptor. TestbedError if there is none."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    try:
        return _bpf(_OBJ_GET, _attributes("=QII", _address(name), 0, 0), f"open pin {path.name}")
    except FileNotFoundError as error:
        raise TestbedError(f"open pin {path}: there is none") from error


def program_id(fd: int) -> int:
    """Return the kernel's id of a loaded program, which devices and filters report."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("prog_id:"):
            return int(line.split()[1])
    raise TestbedError(f"descriptor {fd}: not a BPF program")


def program_name(number: int) -> str:
    """Return the name of a loaded program by its id; "" if it has none, or the kernel does not tell."""
    info = ctypes.create_string_buffer(_INFO_BYTES)
    try:
        fd = _bpf(_PROGRAM_BY_NUMBER, _attributes("=III", number, 0, 0), f"open program {number}")
    except OSError:
        return ""
    try:
        _bpf(_INFO, _attributes("=IIQ", fd, _INFO_BYTES, _address(info)), f"ask for program {number}")
    except OSError:
        return ""
    finally:
        os.close(fd)
    return info.raw[_INFO_NAME_AT:_INFO_BYTES].split(b"\0")[0].decode(errors="replace")


def run(program: int, frame: bytes, ingress_ifindex: int = 0, times: int = 1) -> tuple[int, bytes]:
    """Run an XDP program on a frame `times` times; return its last action, and the frame as it left it.
    `ingress_ifindex` is a device of this namespace.
    """
    data_in, data_out = ctypes.create_string_buffer(frame, len(frame)), ctypes.create_string_buffer(4096)
    context = ctypes.create_string_buffer(struct.pack("=IIIIII", 0, len(frame), 0, ingress_ifindex, 0, 0), 24)
    attributes = _attributes(
        "=IIIIQQIIIIQQ",
        *(program, 0, len(frame), len(data_out), _address(data_in), _address(data_out)),
        *(times, 0, 24 if ingress_ifindex else 0, 0, _address(context) if ingress_ifindex else 0, 0),
    )
    _bpf(_TEST_RUN, attributes, "run an XDP program")
    _, action, _, size = struct.unpack_from("=IIII", attributes.raw)
    return int(action), data_out.raw[:size]


def run_live(program: int, frame: bytes, ingress_ifindex: int, times: int = 1) -> None:
    """Run an XDP program on `times` copies of a live frame: redirected copies leave, passed ones go up the
    stack. A signal ends it early: OSError. Needs Linux 5.18; before 6.3 all but the last copy of a broadcast
    are garbled.
    """
    data = ctypes.create_string_buffer(frame, len(frame))
    context = ctypes.create_string_buffer(struct.pack("=IIIIII", 0, len(frame), 0, ingress_ifindex, 0, 0), 24)
    attributes = _attributes(
        "=IIIIQQIIIIQQII",
        *(program, 0, len(frame), 0, _address(data), 0),
        *(times, 0, 24, 0, _address(context), 0, _LIVE_FRAMES, 0),
    )
    _bpf(_TEST_RUN, attributes, "run an XDP program on a live frame")
