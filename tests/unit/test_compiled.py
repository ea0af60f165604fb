"""Maps as C and as Python describe them, compared; and messages on a host without BCC, or with another."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from testbed.aggregation.program import ProgramSource
from testbed.dataplanes.xdp import compiled, layout
from testbed.dataplanes.xdp.compiled import CompiledTables, MapLayout, check_layout
from testbed.dataplanes.xdp.objects import CType
from testbed.errors import HostError, RequestError, SettingError
from testbed.wire import places

RECORD = np.dtype([("seen", "=u8"), ("marked", "=u4"), ("rate", "=u4")])
RECORDS = MapLayout("records", np.dtype("=u4"), RECORD, "here.py")


def table(*fields: tuple[str, type], key: type = ctypes.c_uint) -> SimpleNamespace:
    return SimpleNamespace(Key=key, Leaf=type("Leaf", (ctypes.Structure,), {"_fields_": list(fields)}))


def shapes(made: SimpleNamespace) -> tuple[CType, CType]:
    return CType.of(made.Key), CType.of(made.Leaf)


SAME = (("seen", ctypes.c_ulonglong), ("marked", ctypes.c_uint), ("rate", ctypes.c_uint))


def test_a_layout_that_is_stated_right_passes() -> None:
    check_layout(RECORDS, *shapes(table(*SAME)))
    padded = np.dtype([("seen", "=u8"), ("rate", "=u8")])
    check_layout(
        MapLayout("records", np.dtype("=u4"), padded, "here.py"),
        *shapes(
            table(("seen", ctypes.c_ulonglong), ("rate", ctypes.c_ulonglong), ("__pad_1", ctypes.c_char * 0))
        ),
    )


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (table(*SAME[:2]), r"^map records: C has the fields"),
        (table(*SAME, ("more", ctypes.c_uint)), r"^map records: C has 24 bytes, here\.py 16$"),
        (table(*SAME, key=ctypes.c_ulonglong), r"^map records: C has 8 bytes, here\.py 4$"),
        (
            table(SAME[0], SAME[2], SAME[1]),
            r"^map records: C has the fields \{'seen': 0, 'rate': 8, 'marked': 12\}, here\.py \{'seen': 0, ",
        ),
    ],
)
def test_another_layout_is_named(made: SimpleNamespace, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        check_layout(RECORDS, *shapes(made))


class Loader:
    """BCC, as far as it is used. It refuses what `refused` names."""

    XDP, SCHED_CLS = 6, 3
    refused = ""
    made: ClassVar[list[Loader]] = []

    def __init__(self, text: str, cflags: list[str]) -> None:
        if self.refused == "text":
            raise Exception("Failed to compile BPF module <text>")  # as BCC does
        self.cleaned, self.funcs = 0, dict[bytes, object]()
        self.made.append(self)

    def load_func(self, name: str, kind: int) -> SimpleNamespace:
        if self.refused == name:
            raise Exception(f"Failed to load BPF program {name}: Operation not permitted")
        return SimpleNamespace(fd=kind)

    def __getitem__(self, name: str) -> SimpleNamespace:
        return table(*SAME[:2]) if self.refused == "layout" else table(*SAME)

    def cleanup(self) -> None:
        self.cleaned += 1


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> type[Loader]:
    monkeypatch.setattr(compiled, "kernel_headers", lambda: Path("/nowhere"))
    monkeypatch.setattr(Loader, "made", [])
    monkeypatch.setitem(sys.modules, "bcc", SimpleNamespace(BPF=Loader, __version__="0"))
    return Loader


def load() -> CompiledTables:
    return CompiledTables("bpf/x.c", "", {"first": "XDP", "second": "SCHED_CLS"}, [RECORDS])


def test_the_working_directory_is_left_alone(loader: type[Loader], monkeypatch: pytest.MonkeyPatch) -> None:
    """BCC goes to the kernel's headers meanwhile, when others start processes and open files."""
    made = Loader.__init__

    def wander(self: Loader, text: str, cflags: list[str]) -> None:
        os.chdir("/")
        made(self, text, cflags)

    monkeypatch.setattr(Loader, "__init__", wander)
    before = Path.cwd()
    with load():
        assert Path.cwd() == before != Path("/")


def test_programs_are_had_by_name_and_dropped_at_the_end(loader: type[Loader]) -> None:
    with load() as loaded:
        assert (loaded.program_fd("first"), loaded.program_fd("second")) == (6, 3)
        assert loader.made[0].cleaned == 0
    assert [made.cleaned for made in loader.made] == [1]


@pytest.mark.parametrize(
    ("refused", "kind", "said", "left"),
    [
        (
            "text",
            HostError,
            r"^load bpf/x\.c: Failed to compile BPF module <text>; `testbed doctor` says",
            [],
        ),
        (
            "second",
            HostError,
            r"^load bpf/x\.c: Failed to load BPF program second: Operation not permitted;",
            [1],
        ),
        ("layout", SettingError, r"^map records: C has the fields", [1]),
    ],
)
def test_what_is_not_loaded_whole_is_let_go_of(
    refused: str,
    kind: type[Exception],
    said: str,
    left: list[int],
    loader: type[Loader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "refused", refused)
    with pytest.raises(kind, match=said):
        load()
    assert [made.cleaned for made in loader.made] == left


def test_without_bcc_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "kernel_headers", lambda: Path("/nowhere"))
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(HostError, match=r"^import bcc: .*; install Debian's python3-bpfcc"):
        load()


def test_a_program_s_map_has_a_name_of_its_own() -> None:
    own = ProgramSource("mine", 3, Path("mine.h"), {"scales": places.SLOT})
    assert layout.maps(32, [own])["scales"][1] == places.SLOT.dtype(32)
    for name in ("entries", "scales"):
        again = replace(own, name="other", maps={name: places.SLOT})
        with pytest.raises(RequestError, match=f"program other: its map '{name}': there is one"):
            layout.maps(32, [own, again])
